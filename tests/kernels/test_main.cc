// main of the tests of kernels/: their target and their engine
// (test_engine.h has the flags), and what happens after a GPU's context is
// lost. A fault on the GPU ends the context of the whole process; every test
// behind it would fail for a reason that is not its own. They fail without
// running, and say which test lost the context.
#include "tests/kernels/test_main.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/base/file.h"
#include "runtime/base/status_macros.h"
#include "runtime/cache/entry.h"
#include "runtime/cuda/device.h"

namespace kvforge {
namespace {

// What ctest counts as skipped.
constexpr int kExitSkipped = 77;
constexpr int kExitUsage = 2;

bool context_lost_for_test = false;

absl::Status ContextStatus() {
  if (context_lost_for_test) return absl::InternalError("lost for a test");
  return SynchronizeTarget(TestEngine(), nullptr);
}

class ContextGuard : public ::testing::EmptyTestEventListener {
 public:
  void OnTestStart(const ::testing::TestInfo&) override {
    if (lost_.empty()) return;
    ADD_FAILURE() << "did not run: " << lost_;
  }

  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!lost_.empty()) return;
    const absl::Status status = ContextStatus();
    if (status.ok()) return;
    lost_ =
        absl::StrCat("the GPU's context was lost in ", test.test_suite_name(),
                     ".", test.name(), " (", status.message(),
                     "); run the tests behind it in a process of their "
                     "own");
    ADD_FAILURE() << lost_;
    // GoogleTest skips what comes behind a failure; OnTestStart fails it.
    GTEST_FLAG_SET(fail_fast, true);
  }

 private:
  std::string lost_;
};

absl::Status ParseFlag(absl::string_view argument, absl::string_view value,
                       bool& used_value, TestFlags& flags) {
  used_value = true;
  if (argument == "--target") {
    if (value != "host" && value != "cuda") {
      return absl::InvalidArgumentError(absl::StrCat(
          "--target ", value, " is unknown; host and cuda are supported"));
    }
    flags.target = value == "cuda" ? TargetKind::kCuda : TargetKind::kHost;
  } else if (argument == "--gpu") {
    flags.gpu = std::string(value);
  } else if (argument == "--random-cases") {
    if (!absl::SimpleAtoi(value, &flags.random_cases) ||
        flags.random_cases < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--random-cases ", value, " is no number above 0"));
    }
  } else if (argument == "--random-seed") {
    if (!absl::SimpleAtoi(value, &flags.random_seed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--random-seed ", value, " is no number"));
    }
  } else if (argument == "--points") {
    flags.points = 0;
    if (value != "all" &&
        (!absl::SimpleAtoi(value, &flags.points) || flags.points == 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--points ", value, " is neither all nor a number above 0"));
    }
  } else if (argument == "--seed") {
    if (!absl::SimpleAtoi(value, &flags.seed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--seed ", value, " is no number"));
    }
  } else if (argument == "--json") {
    flags.json = std::string(value);
  } else if (argument == "--executed") {
    flags.executed = std::string(value);
  } else if (argument == "--random-case") {
    flags.random_case = std::string(value);
  } else {
    used_value = false;
    if (argument == "--all-tiles") {
      flags.all_tiles = true;
      return absl::OkStatus();
    }
    if (argument != "--list-specs") {
      return absl::InvalidArgumentError(
          absl::StrCat(argument,
                       " is unknown; --target, --gpu, --all-tiles, "
                       "--list-specs, "
                       "--executed, --random-cases, --random-seed, "
                       "--random-case, --points, --seed, --json and "
                       "GoogleTest's flags are supported"));
    }
    flags.list_specs = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<TestFlags> ParseFlags(int argc, char** argv) {
  TestFlags flags;
  for (int i = 1; i < argc; ++i) {
    bool used_value = false;
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    RETURN_IF_ERROR(ParseFlag(argv[i], value, used_value, flags));
    if (used_value) ++i;
  }
  return flags;
}

// A folder for the recorded kernels, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = ::testing::TempDir() + "kvforge-specs-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One line a recorded kernel: its SPEC, and its tile where that is not the
// selector's.
absl::Status PrintSpecs(const std::string& folder, const GpuTarget& gpu) {
  std::set<std::string> lines;
  for (const auto& item :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (!item.is_regular_file() || item.path().extension() != ".kvk") continue;
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(item.path().string()));
    ASSIGN_OR_RETURN(const Entry entry, ParseEntry(bytes));
    ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec(entry.key.spec));
    ASSIGN_OR_RETURN(const TileCandidate choice, SelectTile(spec, gpu));
    const bool selected = choice.tile.Text() == entry.key.tile;
    lines.insert(selected ? entry.key.spec
                          : absl::StrCat(entry.key.spec, " ", entry.key.tile));
  }
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
  return absl::OkStatus();
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return code;
}

int ListSpecs(const TestFlags& flags) {
  const ScratchFolder folder;
  EngineOptions options;
  options.gpu = flags.gpu;
  options.jit_path = KVFORGE_RECORDING_JIT;
  options.cache_roots = {{folder.path(), false}};
  options.cache_byte_cap = 0;
  const absl::Status opened = OpenTestEngine(flags, options);
  if (!opened.ok()) return Fail(opened, kExitUsage);
  ::testing::TestEventListeners& listeners =
      ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  // Without kernels that do anything, tests fail; what they ask for counts.
  if (RUN_ALL_TESTS() == 0 &&
      ::testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    return Fail(absl::InvalidArgumentError("no test matches the filter"),
                kExitUsage);
  }
  const absl::Status printed = PrintSpecs(folder.path(), TestEngine().gpu());
  return printed.ok() ? 0 : Fail(printed, 1);
}

int RunTests(const TestFlags& flags) {
  absl::StatusOr<EngineOptions> options = EngineOptionsFromEnvironment();
  if (!options.ok()) return Fail(options.status(), kExitUsage);
  options->target = flags.target;
  options->gpu = flags.gpu;
  const absl::Status opened = OpenTestEngine(flags, *std::move(options));
  if (absl::IsUnavailable(opened) && flags.target == TargetKind::kCuda) {
    std::printf("skipped: %d tests of kernels did not run on a GPU: %s\n",
                ::testing::UnitTest::GetInstance()->total_test_count(),
                std::string(opened.message()).c_str());
    return kExitSkipped;
  }
  if (!opened.ok()) return Fail(opened, kExitUsage);
  ::testing::UnitTest::GetInstance()->listeners().Append(new ContextGuard);
  const int code = RUN_ALL_TESTS();
  if (code != 0 || flags.executed.empty()) return code;
  SupportRecord& record = ExecutedRecord();
  record.state = "executed";
  record.on = OnCuda() ? TestEngine().device()->name() : "the CPU";
  const absl::Status written = UpdateSupportRecord(flags.executed, record);
  return written.ok() ? 0 : Fail(written, 1);
}

}  // namespace

void LoseContextForTest() { context_lost_for_test = true; }

}  // namespace kvforge

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const absl::StatusOr<kvforge::TestFlags> flags =
      kvforge::ParseFlags(argc, argv);
  if (!flags.ok()) return kvforge::Fail(flags.status(), kvforge::kExitUsage);
  return flags->list_specs ? kvforge::ListSpecs(*flags)
                           : kvforge::RunTests(*flags);
}

// Preparing: keys, caches, strictness, threads, damage.
#include "kernels/engine.h"
#include "compiler/tile/memory_model.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "templates/embedded.h"
#include "templates/kernels/merge_args.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSpec[] = "merge/d64/f32";

// Folders under a fresh one, removed at the end.
class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    std::string pattern = ::testing::TempDir() + "kvforge-engine-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~EngineTest() override { fs::remove_all(folder_); }

  std::unique_ptr<Engine> Make(
      const std::function<void(EngineOptions&)>& change = nullptr) {
    EngineOptions options;
    options.cache_roots = {{folder_ + "/cache", false}};
    fs::create_directories(folder_ + "/cache");
    fs::permissions(folder_ + "/cache", fs::perms::owner_all);
    options.log = [this](absl::string_view line) {
      std::lock_guard lock(mutex_);
      log_.append(line.data(), line.size());
    };
    if (change) change(options);
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        Engine::Create(std::move(options));
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static KernelSpec Spec(const char* text = kSpec) { return *ParseSpec(text); }

  // The only entry of the cache.
  std::string EntryPath() const {
    std::vector<std::string> paths;
    for (const auto& item : fs::recursive_directory_iterator(folder_)) {
      if (item.path().extension() == ".kvk") paths.push_back(item.path());
    }
    EXPECT_EQ(paths.size(), 1u);
    return paths.empty() ? "" : paths[0];
  }

  std::string folder_;
  std::mutex mutex_;
  std::string log_;
};

TEST_F(EngineTest, CompilesOnceThenFindsInMemoryAndOnDisk) {
  std::unique_ptr<Engine> engine = Make();
  const auto first = engine->Prepare(Spec());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = engine->Prepare(Spec());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(engine->statistics().compiles, 1);
  EXPECT_EQ(engine->statistics().memory_hits, 1);
  EXPECT_EQ(engine->statistics().disk_hits, 0);
  EXPECT_GT(engine->statistics().compile_ms, 0);
  EXPECT_EQ((*first)->facts().block_threads, (*first)->tile().warps * 32);

  engine = Make([](EngineOptions& options) { options.strict = true; });
  const auto again = engine->Prepare(Spec());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(engine->statistics().compiles, 0);
  EXPECT_EQ(engine->statistics().disk_hits, 1);
  EXPECT_EQ((*again)->facts(), (*first)->facts());
}

TEST_F(EngineTest, VerboseSaysWhereAKernelCameFrom) {
  const auto prepare = [this](int verbose, int times) {
    const std::unique_ptr<Engine> engine =
        Make([&](EngineOptions& options) { options.verbose = verbose; });
    log_.clear();
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(engine->Prepare(Spec()).ok());
    }
  };
  prepare(1, 2);
  EXPECT_THAT(log_, HasSubstr("compiled spec="));
  EXPECT_THAT(log_, Not(HasSubstr("found in memory")));
  prepare(2, 2);
  EXPECT_THAT(log_, HasSubstr("loaded from a cache folder spec="));
  EXPECT_THAT(log_, HasSubstr("found in memory spec="));
  prepare(0, 2);
  EXPECT_EQ(log_, "");
}

TEST_F(EngineTest, ManyThreadsOneCompile) {
  const std::unique_ptr<Engine> engine = Make();
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<const PreparedKernel>> kernels(16);
  for (auto& kernel : kernels) {
    threads.emplace_back([&] { kernel = *engine->Prepare(Spec()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine->statistics().compiles, 1);
  EXPECT_EQ(std::set(kernels.begin(), kernels.end()).size(), 1u);
}

TEST_F(EngineTest, StrictMissNamesTheKernelAndTheRemedy) {
  const std::unique_ptr<Engine> engine =
      Make([](EngineOptions& options) { options.strict = true; });
  const absl::Status status = engine->Prepare(Spec()).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(kSpec));
  // What the CPU runs is primed under a name of its own.
  EXPECT_THAT(std::string(status.message()), HasSubstr("kvforge prime merge/"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(" --gpus host-sm_80 "));
  EXPECT_EQ(engine->statistics().compiles, 0);
}

TEST_F(EngineTest, DamagedObjectIsCompiledAgain) {
  ASSERT_TRUE(Make()->Prepare(Spec()).ok());
  // An entry that is whole, around a payload that is no object.
  Entry entry;
  {
    std::ifstream file(EntryPath(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    entry = *ParseEntry(bytes);
    entry.payload = "no object";
  }
  std::ofstream(EntryPath(), std::ios::binary) << SerializeEntry(entry);
  const std::unique_ptr<Engine> engine = Make();
  const auto kernel = engine->Prepare(Spec());
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(engine->statistics().compiles, 1);
  EXPECT_THAT(log_, HasSubstr(".kvk"));
}

TEST_F(EngineTest, KeyDependsOnGpuTargetTileAndTemplates) {
  const std::unique_ptr<Engine> engine = Make();
  const KernelSpec spec = Spec();
  const GpuTarget& sm_80 = **FindTarget("sm_80");
  const GpuTarget& sm_90 = **FindTarget("sm_90");
  const Tile tile{8, 0, 1, 8}, other{4, 0, 1, 4};
  std::set<std::string> digests;
  digests.insert(KeyDigest(engine->Key(spec, tile, sm_80, "host")));
  digests.insert(KeyDigest(engine->Key(spec, tile, sm_80, "cuda")));
  digests.insert(KeyDigest(engine->Key(spec, tile, sm_90, "cuda")));
  digests.insert(KeyDigest(engine->Key(spec, other, sm_90, "cuda")));
  EXPECT_EQ(engine->Key(spec, tile, sm_90, "cuda").arch, "sm_90a");
  EXPECT_EQ(engine->Key(spec, tile, sm_90, "host").arch, "host-sm_90");

  const std::string overlay = folder_ + "/overlay";
  fs::create_directories(overlay + "/kernels");
  const auto write = [&](const std::string& text) {
    std::ofstream(overlay + "/kernels/merge.cuh") << text;
  };
  const auto with_overlay = [&](EngineOptions& options) {
    options.templates_dir = overlay;
  };
  write("one");
  digests.insert(KeyDigest(Make(with_overlay)->Key(spec, tile, sm_80, "host")));
  write("two");
  digests.insert(KeyDigest(Make(with_overlay)->Key(spec, tile, sm_80, "host")));
  EXPECT_EQ(digests.size(), 6u);
}

TEST_F(EngineTest, OverlayReplacesATemplate) {
  const std::string overlay = folder_ + "/overlay";
  fs::create_directories(overlay + "/kernels");
  // Merges everything to its first part's weight of zero.
  std::string text(FindEmbeddedFile("kernels/merge.cuh")->text);
  const size_t at = text.find("x[0] = x[0] / total;");
  ASSERT_NE(at, std::string::npos);
  text.insert(at, "total = total * 2;\n");
  std::ofstream(overlay + "/kernels/merge.cuh") << text;
  const auto run = [&](const std::string& folder) {
    const std::unique_ptr<Engine> engine =
        Make([&](EngineOptions& options) { options.templates_dir = folder; });
    const auto kernel = engine->Prepare(Spec());
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    alignas(16) static float part[64], out[64];
    part[0] = 6;
    const float lse = 0;
    MergeArgs args = {};
    args.partial_out = part;
    args.partial_lse = &lse;
    args.out = reinterpret_cast<unsigned char*>(out);
    args.out_row_stride = args.out_head_stride = 256;
    args.splits = args.rows = args.heads = 1;
    KVFORGE_EXPECT_OK((*kernel)->Launch(1, &args, sizeof(args), nullptr));
    return out[0];
  };
  EXPECT_EQ(run(""), 6);
  EXPECT_EQ(run(overlay), 3);

  std::ofstream(overlay + "/kernels/other.cuh") << "";
  const std::unique_ptr<Engine> engine =
      Make([&](EngineOptions& options) { options.templates_dir = overlay; });
  EXPECT_THAT(std::string(engine->Prepare(Spec()).status().message()),
              HasSubstr("kernels/other.cuh replaces no template; a file must "
                        "have the relative path of one, such as "
                        "kernels/decode.cuh; move it or take it out"));
}

TEST_F(EngineTest, OverlayEditedAfterCreationIsNotCachedUnderItsOldKey) {
  const std::string overlay = folder_ + "/overlay";
  fs::create_directories(overlay + "/kernels");
  const std::string text(FindEmbeddedFile("kernels/merge.cuh")->text);
  std::ofstream(overlay + "/kernels/merge.cuh") << text;
  const auto with_overlay = [&](EngineOptions& options) {
    options.templates_dir = overlay;
  };
  const std::unique_ptr<Engine> engine = Make(with_overlay);
  std::ofstream(overlay + "/kernels/merge.cuh") << text << "// edited\n";
  EXPECT_THAT(std::string(engine->Prepare(Spec()).status().message()),
              HasSubstr("has changed since the engine was created"));
  std::ofstream(overlay + "/kernels/merge.cuh") << text;
  const std::unique_ptr<Engine> again = Make(with_overlay);
  EXPECT_TRUE(again->Prepare(Spec()).ok());
  EXPECT_EQ(again->statistics().disk_hits, 0);
}

TEST_F(EngineTest, TextThatDoesNotCompileIsKeptAndNotCached) {
  const std::string overlay = folder_ + "/overlay";
  fs::create_directories(overlay + "/kernels");
  std::ofstream(overlay + "/kernels/merge.cuh") << "this is no kernel";
  const std::unique_ptr<Engine> engine = Make([&](EngineOptions& options) {
    options.templates_dir = overlay;
    options.dump_dir = folder_;
  });
  const absl::Status status = engine->Prepare(Spec()).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  const std::string path = folder_ + "/merge_d64_f32.host-sm_80.";
  EXPECT_THAT(std::string(status.message()), HasSubstr("kernels/merge.cuh"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the text is in " + path));
  for (const auto& item : fs::recursive_directory_iterator(folder_)) {
    EXPECT_NE(item.path().extension(), ".kvk") << item.path();
  }
}

// The model and the template disagree: never a launch with the wrong size.
TEST_F(EngineTest, SharedBytesThatTheModelDoesNotKnow) {
  const std::string overlay = folder_ + "/overlay";
  fs::create_directories(overlay + "/kernels");
  std::string text(FindEmbeddedFile("kernels/merge.cuh")->text);
  const std::string before = "kvforge_shared_bytes = 0";
  ASSERT_NE(text.find(before), std::string::npos);
  text.replace(text.find(before), before.size(), "kvforge_shared_bytes = 48");
  std::ofstream(overlay + "/kernels/merge.cuh") << text;
  const std::unique_ptr<Engine> engine =
      Make([&](EngineOptions& options) { options.templates_dir = overlay; });
  const absl::Status status = engine->Prepare(Spec()).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the memory model says 0 shared bytes, the kernel uses "
                        "48; the two must be equal; correct SharedBytes or the "
                        "template"));
}

TEST_F(EngineTest, RefusesByName) {
  EngineOptions options;
  options.gpu = "sm_61";
  EXPECT_THAT(std::string(Engine::Create(options).status().message()),
              HasSubstr("GPU 'sm_61' is not in the table; served GPUs: sm_80"));
  options.gpu = "sm_75";
  EXPECT_TRUE(absl::IsUnimplemented(Engine::Create(options).status()));
  EXPECT_THAT(
      std::string(
          ParseSpec("store/e4m3_rows/d64/g1/page16/bf16").status().message()),
      HasSubstr("e4m3_rows"));
  KernelSpec spec = Spec("store/e4m3_row/d64/g1/page16/bf16");
  spec.head_dim = spec.v_head_dim = 72;
  const absl::Status head_dim = Make()->Prepare(spec).status();
  EXPECT_TRUE(absl::IsInvalidArgument(head_dim)) << head_dim;
  EXPECT_THAT(std::string(head_dim.message()), HasSubstr("72"));
  spec = Spec("store/e4m3_row/d64/g1/page16/bf16");
  KvFormat unserved = **FindFormat("mxfp8");
  unserved.served = false;
  spec.k_format = spec.v_format = &unserved;
  const absl::Status format = Make()->Prepare(spec).status();
  EXPECT_TRUE(absl::IsUnimplemented(format)) << format;
  EXPECT_THAT(std::string(format.message()), HasSubstr("mxfp8"));
}

// Without the compiler: nothing is compiled to know it.
TEST_F(EngineTest, SaysAtStartUpWhatIsServed) {
  const std::unique_ptr<Engine> engine = Make([&](EngineOptions& options) {
    options.jit_path = folder_ + "/libkvforge_jit.so";
  });
  KernelSpec spec = Spec("decode/mxfp8/d128/g4/page16/bf16");
  EXPECT_TRUE(engine->CheckServed(spec).ok());
  spec.head_dim = spec.v_head_dim = 80;
  const absl::Status head_dim = engine->CheckServed(spec);
  EXPECT_TRUE(absl::IsInvalidArgument(head_dim)) << head_dim;
  EXPECT_EQ(head_dim, engine->Prepare(spec).status());
  spec.head_dim = spec.v_head_dim = 128;
  KvFormat unserved = **FindFormat("mxfp8");
  unserved.served = false;
  spec.k_format = spec.v_format = &unserved;
  const absl::Status format = engine->CheckServed(spec);
  EXPECT_TRUE(absl::IsUnimplemented(format)) << format;
  EXPECT_EQ(format, engine->Prepare(spec).status());
  EXPECT_EQ(engine->statistics().compiles, 0);
}

TEST_F(EngineTest, MissingCompilerSaysWhereItWasLookedFor) {
  const std::unique_ptr<Engine> engine = Make([&](EngineOptions& options) {
    options.jit_path = folder_ + "/libkvforge_jit.so";
  });
  const absl::Status status = engine->Prepare(Spec()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(folder_ + "/libkvforge_jit.so"));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("libkvforge_jit.so is looked for beside libkvforge; set "
                "KVFORGE_JIT to its path, or prime a cache with every "
                "kernel that is needed"));
}

// Text for another GPU runs on the CPU all the same.
TEST_F(EngineTest, HostRunsTheTextOfANamedGpu) {
  for (const char* gpu : {"sm_89", "sm_100"}) {
    const std::unique_ptr<Engine> engine =
        Make([&](EngineOptions& options) { options.gpu = gpu; });
    CaseOptions options;
    options.name = gpu;
    options.format = "nvfp4_row";
    options.v_format = "e4m3_row";
    options.head_dim = 64;
    options.q_lens = {1, 3};
    options.kv_lens = {9, 40};
    const CaseRun run = RunCase(*engine, Generated(options), 0, 1);
    for (const KernelResult& result : run.results) {
      EXPECT_TRUE(result.status.ok())
          << gpu << " " << result.kernel << ": " << result.status;
    }
  }
}

TEST(ChooseDecodeGrid, GivesEachBlockAUnitOfSeveralHeads) {
  const auto kernel = Prepared("decode/e4m3_row/d64/g4/page16/bf16");
  const Engine& engine = TestEngine();  // sized for 8 multiprocessors
  const int most = DecodeHeadsPerBlock(kernel->spec(), kernel->tile());
  ASSERT_EQ(most, 8);
  const int blocks = ChooseDecodeGrid(engine, *kernel, {}).blocks;
  EXPECT_EQ(blocks % 8, 0);
  struct Sizes {
    int batch, num_kv_heads, heads_per_block;
  };
  for (const Sizes& sizes : std::vector<Sizes>{
           {0, 8, 1},           // nothing to do
           {1, 4, 1},           // fewer units than blocks, whatever is taken
           {blocks / 8, 8, 2},  // a unit of one head each
           {4096, 8, 8},        // more than enough
           {4096, 6, 2},        // 4 does not divide the heads
           {4096, 7, 1},        // nor does 2
           {blocks, 8, 8},      // a unit each
           {blocks / 2, 8, 4},  // likewise
           {blocks / 4, 8, 2}}) {
    const DecodeGrid grid =
        ChooseDecodeGrid(engine, *kernel, {sizes.batch, sizes.num_kv_heads});
    EXPECT_EQ(grid.blocks, blocks);
    EXPECT_EQ(grid.heads_per_block, sizes.heads_per_block)
        << sizes.batch << " sequences of " << sizes.num_kv_heads << " heads";
  }
}

}  // namespace
}  // namespace kvforge

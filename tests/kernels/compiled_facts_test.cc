// What the compiled kernels of every GPU hold, without a GPU: the shared bytes
// that the template exports are those of the model, and no kernel spills but
// those known to.
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

struct Point {
  KernelSpec spec;
  const GpuTarget* gpu;
};

// Each feature alone, all that add registers together, and a query in two parts
// beside a full output.
constexpr const char* kFeatureSpecs[] = {
    "decode/e4m3_row/d128/g4/page16/bf16/alibi=1",
    "decode/e4m3_row/d128/g4/page16/bf16/mask=custom/q_max=16",
    "decode/e4m3_row/d128/g4/page16/bf16/sparse=24",
    "decode/nvfp4_row/d128/g8/page16/bf16/mask=custom/q_max=16/sparse=24",
    "extend/e4m3_row/d128/g4/page16/bf16/alibi=1",
    "extend/e4m3_row/d128/g4/page16/bf16/mask=custom",
    "extend/e4m3_row/d128/g4/page16/bf16/sparse=24",
    "decode/bf16/d192/g16/page48/bf16/alibi=1/mask=custom/q_max=16/sinks=1/"
    "softcap=30/sparse=24/window=4096",
    "extend/nvfp4_row/d256/g4/page48/bf16/alibi=1/mask=custom/sinks=1/"
    "softcap=30/sparse=24/window=4096",
    "extend/bf16/d256/g4/page16/f32",
};

// Kernels whose output rows nearly fill the 255 registers of a thread. What
// ptxas puts into local memory on some GPUs may not grow.
struct KnownSpill {
  const char* spec;
  int bytes;
};
constexpr KnownSpill kKnownSpills[] = {
    {"extend/mxfp8/d256/g4/page16/bf16", 96},
    {"extend/mxfp4/d256/g4/page16/bf16", 40},
    {"extend/bf16/d128/g4/page16/bf16", 12},
};

int KnownSpillBytes(const std::string& spec) {
  for (const KnownSpill& known : kKnownSpills) {
    if (spec == known.spec) return known.bytes;
  }
  return 0;
}

std::vector<Point> Points() {
  std::vector<std::string> specs;
  for (const KvFormat& format : kFormats) {
    if (!format.served) continue;
    for (int head_dim : {64, 128, 256}) {
      for (const char* kernel : {"store", "decode", "extend", "gather"}) {
        specs.push_back(absl::StrCat(kernel, "/", format.name, "/d", head_dim,
                                     "/g4/page16/bf16"));
      }
    }
  }
  for (int head_dim : {64, 128, 256}) {
    specs.push_back(absl::StrCat("merge/d", head_dim, "/bf16"));
  }
  specs.insert(specs.end(), std::begin(kFeatureSpecs), std::end(kFeatureSpecs));
  std::vector<Point> points;
  for (const std::string& text : specs) {
    const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
    EXPECT_TRUE(spec.ok()) << spec.status();
    for (const GpuTarget& gpu : kTargets) {
      if (gpu.served) points.push_back({*spec, &gpu});
    }
  }
  return points;
}

TEST(CompiledFacts, SharedBytesMeetTheModelAndOnlyKnownKernelsSpill) {
  const std::vector<Point> points = Points();
  ASSERT_EQ(points.size(), (13u * 3 * 4 + 3 + std::size(kFeatureSpecs)) * 10);
  std::vector<std::string> failures;
  std::string unavailable;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < points.size(); i = next++) {
      const Point& point = points[i];
      const std::string name =
          absl::StrCat(point.spec.Text(), " for ", point.gpu->name);
      const auto entry = TestEngine().Compile(point.spec, *point.gpu, "cuda");
      const auto tile = SelectTile(point.spec, *point.gpu);
      const std::lock_guard<std::mutex> lock(mutex);
      if (absl::IsUnavailable(entry.status())) {
        unavailable = std::string(entry.status().message());
        return;
      }
      if (!entry.ok() || !tile.ok()) {
        failures.push_back(absl::StrCat(name, ": ", entry.status().ToString(),
                                        " ", tile.status().ToString()));
        continue;
      }
      const LaunchFacts& facts = (*entry)->facts;
      const int model = SharedBytes(point.spec, tile->tile);
      if (facts.dynamic_shared_bytes != model ||
          facts.static_shared_bytes != 0) {
        failures.push_back(absl::StrCat(name, ": ", facts.dynamic_shared_bytes,
                                        " + ", facts.static_shared_bytes,
                                        " shared bytes, the model says ",
                                        model));
      }
      if (model > point.gpu->shared_bytes_opt_in) {
        failures.push_back(absl::StrCat(name, ": ", model, " shared bytes of ",
                                        point.gpu->shared_bytes_opt_in));
      }
      const int known = KnownSpillBytes(point.spec.Text());
      if (facts.spill_bytes > known || (known == 0 && facts.local_bytes != 0)) {
        failures.push_back(absl::StrCat(
            name, ", tile ", tile->tile.Text(), ": ", facts.spill_bytes,
            " bytes spilled, ", facts.local_bytes, " of local memory"));
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency());
       ++i) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) thread.join();
  if (!unavailable.empty()) {
    GTEST_SKIP() << "the compiled facts of " << points.size()
                 << " kernels were not checked: " << unavailable;
  }
  EXPECT_THAT(failures, ::testing::IsEmpty());
}

}  // namespace
}  // namespace kvforge

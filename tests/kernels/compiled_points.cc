#include "tests/kernels/compiled_points.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/formats/format.h"

namespace kvforge {
namespace {

constexpr int kHeadDims[] = {64, 80, 96, 112, 128, 192, 256, 512};

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

std::vector<const GpuTarget*> ServedGpus() {
  std::vector<const GpuTarget*> gpus;
  for (const GpuTarget& gpu : kTargets) {
    if (gpu.served) gpus.push_back(&gpu);
  }
  return gpus;
}

void Append(const std::string& spec, std::vector<CompiledPoint>& points) {
  for (const GpuTarget* gpu : ServedGpus()) points.push_back({spec, gpu});
}

}  // namespace

std::vector<CompiledPoint> GridPoints() {
  std::vector<CompiledPoint> points;
  for (const int head_dim : kHeadDims) {
    for (const KvFormat& format : kFormats) {
      if (!format.served) continue;
      for (const char* kernel : {"store", "gather"}) {
        Append(absl::StrCat(kernel, "/", format.name, "/d", head_dim,
                            "/g1/page16/bf16"),
               points);
      }
      for (const char* kernel : {"decode", "extend"}) {
        Append(absl::StrCat(kernel, "/", format.name, "/d", head_dim,
                            "/g4/page16/bf16"),
               points);
      }
    }
    Append(absl::StrCat("merge/d", head_dim, "/bf16"), points);
  }
  return points;
}

std::vector<CompiledPoint> FixedPoints() {
  std::vector<CompiledPoint> points;
  for (const char* spec : kFeatureSpecs) Append(spec, points);
  for (const KnownSpill& known : kKnownSpills) Append(known.spec, points);
  return points;
}

std::vector<CompiledPoint> AllPoints() {
  std::vector<CompiledPoint> points = FixedPoints();
  std::set<std::pair<std::string, const GpuTarget*>> seen;
  for (const CompiledPoint& point : points)
    seen.insert({point.spec, point.gpu});
  for (CompiledPoint& point : GridPoints()) {
    if (seen.insert({point.spec, point.gpu}).second) {
      points.push_back(std::move(point));
    }
  }
  return points;
}

std::vector<CompiledPoint> SamplePoints(size_t count, uint64_t seed) {
  std::vector<CompiledPoint> points = AllPoints();
  const size_t fixed = FixedPoints().size();
  count = std::clamp(count, fixed, points.size());
  // Not std::shuffle, whose draws are the library's own.
  std::mt19937_64 random(seed);
  for (size_t i = fixed; i < count; ++i) {
    std::swap(points[i], points[i + random() % (points.size() - i)]);
  }
  points.resize(count);
  return points;
}

int KnownSpillBytes(const std::string& spec) {
  for (const KnownSpill& known : kKnownSpills) {
    if (spec == known.spec) return known.bytes;
  }
  return 0;
}

}  // namespace kvforge

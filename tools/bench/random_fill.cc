#include "tools/bench/random_fill.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "compiler/formats/codec.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"

namespace kvforge::bench {
namespace {

constexpr int64_t kRandomBytes = int64_t{16} << 20;
constexpr uint64_t kRandomSeed = 20;

}  // namespace

absl::Status FillRepeating(const Engine& engine, TargetBuffer& buffer,
                           absl::Span<const uint8_t> pattern) {
  size_t filled = std::min(buffer.bytes(), pattern.size());
  RETURN_IF_ERROR(buffer.CopyFromHost(pattern.data(), filled));
  if (engine.target() == TargetKind::kHost) {
    while (filled < buffer.bytes()) {
      const size_t added = std::min(pattern.size(), buffer.bytes() - filled);
      RETURN_IF_ERROR(buffer.CopyFromHost(pattern.data(), added, filled));
      filled += added;
    }
    return absl::OkStatus();
  }
  const ScopedContext context(*engine.device());
  RETURN_IF_ERROR(context.status());
  const DriverApi& api = engine.device()->api();
  const CuDevicePtr to = reinterpret_cast<CuDevicePtr>(buffer.data());
  // Whole repetitions so far, doubled each time.
  while (filled < buffer.bytes()) {
    const size_t added = std::min(filled, buffer.bytes() - filled);
    RETURN_IF_ERROR(
        api.Check(api.MemcpyDtoDAsync(to + filled, to, added, nullptr),
                  "cuMemcpyDtoDAsync"));
    filled += added;
  }
  return api.Check(api.StreamSynchronize(nullptr), "cuStreamSynchronize");
}

absl::Status FillRandom(const Engine& engine, TargetBuffer& buffer) {
  std::mt19937_64 random(kRandomSeed);
  std::vector<uint8_t> pattern(kRandomBytes);
  for (int64_t i = 0; i < kRandomBytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(pattern.data() + i, &word, 8);
  }
  return FillRepeating(engine, buffer, pattern);
}

std::vector<uint16_t> NormalBf16(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = EncodeBf16(normal(random));
  return values;
}

}  // namespace kvforge::bench

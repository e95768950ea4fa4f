#include "tools/bench/cache_pool.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/store.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/case_table.h"

namespace kvforge::bench {
namespace {

constexpr int kCheckedRows = 64;
constexpr uint64_t kShuffleSeed = 7;

}  // namespace

absl::StatusOr<std::unique_ptr<CachePool>> CachePool::Create(
    Engine& engine, const KvFormat& format, int head_dim, int64_t tokens) {
  const int64_t slots =
      (tokens + kPatternTokens - 1) / kPatternTokens * kPatternTokens;
  ASSIGN_OR_RETURN(CachePlanes planes,
                   CachePlanes::Allocate(engine, format, head_dim, slots));
  std::unique_ptr<CachePool> pool(
      new CachePool(std::move(planes), format, head_dim));
  RETURN_IF_ERROR(pool->Store(engine));
  RETURN_IF_ERROR(pool->CheckSample());
  return pool;
}

absl::Status CachePool::Store(Engine& engine) {
  const KernelSpec spec = FillSpec(planes_.format(), planes_.head_dim());
  ASSIGN_OR_RETURN(const std::shared_ptr<const PreparedKernel> kernel,
                   engine.Prepare(spec));
  std::vector<int64_t> slots(num_slots());
  std::iota(slots.begin(), slots.end(), 0);
  ASSIGN_OR_RETURN(
      const TargetBuffer slot_buffer,
      TargetBuffer::FromHost(engine, slots.data(), slots.size() * 8));
  StoreArgs args = {};
  TargetBuffer sources[2];
  SourceRows* rows[] = {&args.k_src, &args.v_src};
  for (const CacheSide side : {CacheSide::kKey, CacheSide::kValue}) {
    const std::vector<uint16_t>& source = pattern_.source(side);
    TargetBuffer& buffer = sources[static_cast<int>(side)];
    ASSIGN_OR_RETURN(buffer, TargetBuffer::FromHost(engine, source.data(),
                                                    source.size() * 2));
    SourceRows& view = *rows[static_cast<int>(side)];
    view.base = buffer.as<const unsigned char>();
    view.head_stride = int64_t{planes_.head_dim()} * 2;
    view.token_stride = view.head_stride * kKvHeads;
  }
  args.k = planes_.View(CacheSide::kKey, spec.page_size);
  args.v = planes_.View(CacheSide::kValue, spec.page_size);
  args.num_slots = num_slots();
  args.num_tokens = kPatternTokens;
  args.num_kv_heads = kKvHeads;
  for (int64_t slot = 0; slot < num_slots(); slot += kPatternTokens) {
    args.slots = slot_buffer.as<const long long>() + slot;
    RETURN_IF_ERROR(RunStore(*kernel, args, nullptr));
  }
  return SynchronizeTarget(engine, nullptr);
}

absl::Status CachePool::CheckSample() const {
  std::mt19937_64 random(kShuffleSeed);
  for (int i = 0; i < kCheckedRows; ++i) {
    // The last slot among them.
    const int64_t slot =
        i == 0 ? num_slots() - 1
               : static_cast<int64_t>(random() %
                                      static_cast<uint64_t>(num_slots()));
    const int head = static_cast<int>(random() % kKvHeads);
    for (const CacheSide side : {CacheSide::kKey, CacheSide::kValue}) {
      ASSIGN_OR_RETURN(const QuantizedRow row, planes_.Read(side, slot, head));
      if (SameRow(row, pattern_.stored(side, slot, head))) continue;
      return absl::DataLossError(absl::StrCat(
          "bench: ", FillSpec(planes_.format(), planes_.head_dim()).Text(),
          " wrote a wrong row to slot ", slot, " head ", head, " of ",
          side == CacheSide::kKey ? "K" : "V",
          "; run `kvforge check` on this GPU"));
    }
  }
  return absl::OkStatus();
}

std::vector<int32_t> CachePool::ShuffledPages(int page_size) const {
  std::vector<int32_t> pages(num_slots() / page_size);
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937_64 random(kShuffleSeed);
  std::shuffle(pages.begin(), pages.end(), random);
  return pages;
}

}  // namespace kvforge::bench

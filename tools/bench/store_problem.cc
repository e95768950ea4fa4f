#include "tools/bench/store_problem.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/base/status_macros.h"
#include "tools/bench/random_fill.h"

namespace kvforge::bench {
namespace {

constexpr uint64_t kSeed = 11;
constexpr int64_t kMostSets = 512;
constexpr int kCheckedTokens = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<StoreProblem>> StoreProblem::Create(
    const Engine& engine, const BenchCase& bench_case, int64_t cache_bytes) {
  std::unique_ptr<StoreProblem> problem(new StoreProblem(bench_case));
  const int64_t tokens = bench_case.KvTokens();
  const int page_size = bench_case.page_size;
  const int64_t set_pages = (tokens + page_size - 1) / page_size;
  const int64_t set_bytes =
      2 * tokens * kKvHeads * bench_case.format->RowBytes(bench_case.head_dim);
  problem->sets_ = std::clamp<int64_t>(cache_bytes / set_bytes, 2, kMostSets);
  std::vector<int64_t> pages(problem->sets_ * set_pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(kSeed));
  for (int64_t set = 0; set < problem->sets_; ++set) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t page = pages[set * set_pages + token / page_size];
      problem->slots_.push_back(page * page_size + token % page_size);
    }
  }
  ASSIGN_OR_RETURN(
      problem->planes_,
      CachePlanes::Allocate(engine, *bench_case.format, bench_case.head_dim,
                            static_cast<int64_t>(pages.size()) * page_size));
  RETURN_IF_ERROR(problem->planes_.Fill(0xff));
  RETURN_IF_ERROR(problem->Upload(engine));
  return problem;
}

absl::Status StoreProblem::Upload(const Engine& engine) {
  ASSIGN_OR_RETURN(slot_buffer_,
                   TargetBuffer::FromHost(engine, slots_.data(),
                                          slots_.size() * sizeof(int64_t)));
  for (const CacheSide side : {CacheSide::kKey, CacheSide::kValue}) {
    const std::vector<uint16_t>& source = pattern_.source(side);
    TargetBuffer& buffer = sources_[static_cast<int>(side)];
    ASSIGN_OR_RETURN(
        buffer, TargetBuffer::Allocate(
                    engine, case_.KvTokens() * kKvHeads * case_.head_dim * 2));
    RETURN_IF_ERROR(FillRepeating(
        engine, buffer,
        {reinterpret_cast<const uint8_t*>(source.data()), source.size() * 2}));
  }
  return absl::OkStatus();
}

StoreArgs StoreProblem::Args(int64_t index) const {
  StoreArgs args = {};
  args.k_src.base = sources_[0].as<const unsigned char>();
  args.k_src.head_stride = int64_t{case_.head_dim} * 2;
  args.k_src.token_stride = args.k_src.head_stride * kKvHeads;
  args.v_src = args.k_src;
  args.v_src.base = sources_[1].as<const unsigned char>();
  args.k = planes_.View(CacheSide::kKey, case_.page_size);
  args.v = planes_.View(CacheSide::kValue, case_.page_size);
  args.slots =
      slot_buffer_.as<const long long>() + index % sets_ * case_.KvTokens();
  args.num_slots = planes_.num_slots();
  args.num_tokens = static_cast<int>(case_.KvTokens());
  args.num_kv_heads = kKvHeads;
  return args;
}

absl::StatusOr<double> StoreProblem::WrongPart() const {
  std::mt19937_64 random(kSeed);
  const int64_t tokens = case_.KvTokens();
  const int64_t checked = std::min<int64_t>(tokens, kCheckedTokens);
  int wrong = 0;
  int rows = 0;
  for (int64_t i = 0; i < checked; ++i) {
    // Every token of a small case; of a large one the last and random ones.
    int64_t token = tokens - 1 - i;
    if (tokens > checked && i > 0) {
      token = static_cast<int64_t>(random() % static_cast<uint64_t>(tokens));
    }
    for (int head = 0; head < kKvHeads; ++head) {
      for (const CacheSide side : {CacheSide::kKey, CacheSide::kValue}) {
        ASSIGN_OR_RETURN(const QuantizedRow row,
                         planes_.Read(side, slots_[token], head));
        ++rows;
        if (!SameRow(row, pattern_.stored(side, token, head))) ++wrong;
      }
    }
  }
  return static_cast<double>(wrong) / rows;
}

}  // namespace kvforge::bench

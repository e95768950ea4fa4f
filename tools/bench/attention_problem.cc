#include "tools/bench/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/formats/codec.h"
#include "kernels/reference.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/random_fill.h"

namespace kvforge::bench {
namespace {

constexpr int64_t kMostSets = 512;
// Bounds what the reference costs: some 0.1 s a case on one core.
constexpr int64_t kSampledKeys = 32768;

template <typename T>
absl::StatusOr<TargetBuffer> Copy(const Engine& engine,
                                  const std::vector<T>& values) {
  return TargetBuffer::FromHost(engine, values.data(),
                                values.size() * sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionProblem>> AttentionProblem::Create(
    const Engine& engine, const CachePool& pool, const BenchCase& bench_case) {
  std::unique_ptr<AttentionProblem> problem(
      new AttentionProblem(pool, bench_case));
  RETURN_IF_ERROR(problem->PlacePages(engine));
  RETURN_IF_ERROR(problem->Upload(engine));
  return problem;
}

absl::Status AttentionProblem::PlacePages(const Engine& engine) {
  const int page_size = case_.page_size;
  const std::vector<int32_t> pages = pool_.ShuffledPages(page_size);
  int64_t used = 0;
  for (const int kv_len : kv_lens_) {
    const int64_t needed = (kv_len + page_size - 1) / page_size;
    used += needed;
    width_ = std::max(width_, needed);
  }
  if (used == 0 || used > static_cast<int64_t>(pages.size())) {
    return absl::InternalError(absl::StrCat("bench: ", case_.Name(), " takes ",
                                            used, " pages of a pool of ",
                                            pages.size()));
  }
  sets_ =
      std::min<int64_t>(static_cast<int64_t>(pages.size()) / used, kMostSets);
  page_table_.assign(sets_ * case_.batch * width_, -1);
  auto next = pages.begin();
  for (int64_t set = 0; set < sets_; ++set) {
    for (int sequence = 0; sequence < case_.batch; ++sequence) {
      const int64_t needed = (kv_lens_[sequence] + page_size - 1) / page_size;
      std::copy(next, next + needed,
                page_table_.begin() + (set * case_.batch + sequence) * width_);
      next += needed;
    }
  }
  ASSIGN_OR_RETURN(page_tables_, Copy(engine, page_table_));
  return absl::OkStatus();
}

absl::Status AttentionProblem::Upload(const Engine& engine) {
  const std::vector<uint16_t>& query = pool_.pattern().query();
  const int64_t rows = int64_t{case_.batch} * case_.q_len * case_.num_q_heads();
  const int64_t bytes = rows * case_.head_dim * 2;
  ASSIGN_OR_RETURN(q_, TargetBuffer::Allocate(engine, bytes));
  RETURN_IF_ERROR(FillRepeating(
      engine, q_,
      {reinterpret_cast<const uint8_t*>(query.data()), query.size() * 2}));
  ASSIGN_OR_RETURN(out_, TargetBuffer::Allocate(engine, bytes));
  std::vector<int32_t> q_indptr;
  for (int i = 0; i <= case_.batch; ++i) q_indptr.push_back(i * case_.q_len);
  ASSIGN_OR_RETURN(q_indptr_, Copy(engine, q_indptr));
  ASSIGN_OR_RETURN(kv_lens_buffer_, Copy(engine, kv_lens_));
  return absl::OkStatus();
}

AttentionArgs AttentionProblem::Args(int64_t index) const {
  AttentionArgs args = {};
  args.q = q_.as<const unsigned char>();
  args.q_head_stride = int64_t{case_.head_dim} * 2;
  args.q_token_stride = args.q_head_stride * case_.num_q_heads();
  args.out = out_.as<unsigned char>();
  args.out_head_stride = args.q_head_stride;
  args.out_token_stride = args.q_token_stride;
  args.q_indptr = q_indptr_.as<const int>();
  args.kv_lens = kv_lens_buffer_.as<const int>();
  args.page_table =
      page_tables_.as<const int>() + index % sets_ * case_.batch * width_;
  args.page_table_stride = width_;
  args.k = pool_.planes().View(CacheSide::kKey, case_.page_size);
  args.v = pool_.planes().View(CacheSide::kValue, case_.page_size);
  args.sm_scale = 1.0f / std::sqrt(static_cast<float>(case_.head_dim));
  args.batch = case_.batch;
  args.num_kv_heads = kKvHeads;
  args.total_q = case_.batch * case_.q_len;
  return args;
}

absl::Status AttentionProblem::PoisonOut() { return out_.Fill(0xff); }

std::vector<AttentionProblem::Sample> AttentionProblem::Samples() const {
  const int last = case_.batch - 1;
  const int last_token = case_.q_len - 1;
  std::vector<Sample> samples = {{0, last_token, 0},
                                 {last, last_token, 5},
                                 {last / 2, last_token / 2, 2},
                                 {last / 3, 0, 7},
                                 {last / 4, last_token, 3}};
  // As many as the bound allows, the first in any case.
  int64_t keys = 0;
  size_t kept = 0;
  for (; kept < samples.size(); ++kept) {
    keys += kv_lens_[samples[kept].sequence];
    if (kept > 0 && keys > kSampledKeys) break;
  }
  samples.resize(kept);
  return samples;
}

double AttentionProblem::ErrorOf(const Sample& sample,
                                 const std::vector<uint16_t>& out) const {
  const int kv_len = kv_lens_[sample.sequence];
  const int visible = kv_len - case_.q_len + sample.token + 1;
  const int head_dim = case_.head_dim;
  const int64_t row = (int64_t{sample.sequence} * case_.q_len + sample.token) *
                          case_.num_q_heads() +
                      int64_t{sample.kv_head} * case_.group;
  const std::vector<uint16_t>& query = pool_.pattern().query();
  const int64_t elements = static_cast<int64_t>(query.size());
  std::vector<double> q;
  for (int64_t i = row * head_dim; i < (row + case_.group) * head_dim; ++i) {
    q.push_back(DecodeBf16(query[i % elements]));
  }
  std::vector<double> k;
  std::vector<double> v;
  k.reserve(int64_t{visible} * head_dim);
  v.reserve(int64_t{visible} * head_dim);
  for (int key = 0; key < visible; ++key) {
    const int64_t page =
        page_table_[sample.sequence * width_ + key / case_.page_size];
    const int64_t slot = page * case_.page_size + key % case_.page_size;
    const auto append = [&](CacheSide side, std::vector<double>& rows) {
      const absl::Span<const double> values =
          pool_.pattern().decoded(side, slot, sample.kv_head);
      rows.insert(rows.end(), values.begin(), values.end());
    };
    append(CacheSide::kKey, k);
    append(CacheSide::kValue, v);
  }
  ReferenceParams params;
  params.num_q_heads = case_.group;
  params.num_kv_heads = 1;
  params.head_dim = params.v_head_dim = head_dim;
  params.sm_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const absl::StatusOr<ReferenceResult> reference =
      ReferenceAttention(params, {1, visible, q, k, v});
  if (!reference.ok()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (int head = 0; head < case_.group; ++head) {
    double largest = 0;
    double error = 0;
    for (int d = 0; d < head_dim; ++d) {
      const double expected = reference->out[int64_t{head} * head_dim + d];
      const double got = DecodeBf16(out[(row + head) * head_dim + d]);
      if (!std::isfinite(got)) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, std::fabs(expected));
      error = std::max(error, std::fabs(got - expected));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

absl::StatusOr<double> AttentionProblem::SampledError() const {
  std::vector<uint16_t> out(out_.bytes() / 2);
  RETURN_IF_ERROR(out_.CopyToHost(out.data(), out_.bytes()));
  std::vector<std::future<double>> errors;
  for (const Sample& sample : Samples()) {
    errors.push_back(std::async(std::launch::async, [this, sample, &out] {
      return ErrorOf(sample, out);
    }));
  }
  double worst = 0;
  for (std::future<double>& error : errors) {
    worst = std::max(worst, error.get());
  }
  return worst;
}

}  // namespace kvforge::bench

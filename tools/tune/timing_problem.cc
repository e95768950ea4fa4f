#include "tools/tune/timing_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/random_fill.h"
#include "tools/tune/candidate_check.h"

namespace kvforge::tune {
namespace {

constexpr int kRowTokens = 256;   // of rows made on the host
constexpr int64_t kL2Caches = 4;  // that the page sets fill
constexpr int64_t kFewestSets = 2;
constexpr int64_t kMostSets = 512;
constexpr uint64_t kShuffleSeed = 7;

template <typename T>
absl::StatusOr<TargetBuffer> Copy(const Engine& engine,
                                  const std::vector<T>& values) {
  return TargetBuffer::FromHost(engine, values.data(),
                                values.size() * sizeof(T));
}

// What a plane holds of each row, one behind the other.
std::vector<uint8_t> PlaneRows(const CaseSide& side, PlaneKind kind) {
  if (kind == PlaneKind::kCodes) return side.codes;
  if (kind == PlaneKind::kBlockScale) return side.block_scale;
  std::vector<float> scales;
  for (size_t i = 0; i < side.row_scale.size(); ++i) {
    scales.push_back(side.row_scale[i]);
    if (!side.row_min.empty()) scales.push_back(side.row_min[i]);
  }
  std::vector<uint8_t> bytes(scales.size() * sizeof(float));
  std::memcpy(bytes.data(), scales.data(), bytes.size());
  return bytes;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

absl::StatusOr<std::unique_ptr<TimingProblem>> TimingProblem::Create(
    const Engine& engine, const KernelSpec& spec, const TuneShape& shape,
    int64_t l2_bytes) {
  std::unique_ptr<TimingProblem> problem(
      new TimingProblem(engine, spec, shape));
  ASSIGN_OR_RETURN(CaseOptions options, CaseFor(spec, shape.num_kv_heads));
  options.q_lens = {1};
  options.kv_lens = {kRowTokens};
  options.mask = nullptr;  // every row is wanted
  options.sparse_block = 0;
  ASSIGN_OR_RETURN(problem->rows_, GenerateCase(options));
  problem->geometry_ = GeometryOf(problem->rows_, kCaseLayouts[0]);
  problem->geometry_.order = spec.order;
  problem->width_ = CeilDiv(shape.kv_len, spec.page_size);
  const int64_t set_pages = shape.batch * problem->width_;
  problem->launch_bytes_ = int64_t{shape.batch} * shape.kv_len *
                           CacheBytesPerToken(problem->geometry_);
  problem->sets_ =
      std::clamp(CeilDiv(kL2Caches * l2_bytes, problem->launch_bytes_),
                 kFewestSets, kMostSets);
  RETURN_IF_ERROR(problem->FillCache(problem->sets_ * set_pages));
  RETURN_IF_ERROR(problem->UploadLists(problem->sets_ * set_pages));
  return problem;
}

absl::Status TimingProblem::FillCache(int64_t num_pages) {
  for (const CacheSide side : {CacheSide::kKey, CacheSide::kValue}) {
    const CaseSide& rows = side == CacheSide::kKey ? rows_.k : rows_.v;
    for (const PlaneKind kind :
         {PlaneKind::kCodes, PlaneKind::kRowScale, PlaneKind::kBlockScale}) {
      const std::vector<uint8_t> pattern = PlaneRows(rows, kind);
      if (pattern.empty()) continue;
      TargetBuffer& plane =
          planes_[static_cast<int>(side)][static_cast<int>(kind)];
      ASSIGN_OR_RETURN(plane, TargetBuffer::Allocate(
                                  engine_, PlaneBufferBytes(geometry_, side,
                                                            kind, num_pages)));
      RETURN_IF_ERROR(bench::FillRepeating(engine_, plane, pattern));
    }
    const std::vector<float>& given =
        rows.channel_scale.empty() ? rows.head_scale : rows.channel_scale;
    if (given.empty()) continue;
    ASSIGN_OR_RETURN(given_[static_cast<int>(side)], Copy(engine_, given));
  }
  return absl::OkStatus();
}

absl::Status TimingProblem::UploadLists(int64_t num_pages) {
  const int batch = shape_.batch;
  std::vector<int32_t> pages(num_pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(kShuffleSeed));
  ASSIGN_OR_RETURN(page_tables_, Copy(engine_, pages));
  std::vector<int32_t> q_indptr(batch + 1);
  std::vector<int32_t> mask_indptr(batch + 1);
  const int64_t mask_bytes = CeilDiv(int64_t{shape_.q_len} * shape_.kv_len, 8);
  const bool masked = spec_.mask == MaskKind::kCustom;
  if (masked && mask_bytes * batch > (int64_t{1} << 31) - 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tune: the masks of ", shape_.Text(), " take ", mask_bytes * batch,
        " bytes; up to 2^31 - 1 are "
        "supported; tune a smaller shape"));
  }
  for (int i = 0; i <= batch; ++i) {
    q_indptr[i] = i * shape_.q_len;
    if (masked) mask_indptr[i] = static_cast<int32_t>(i * mask_bytes);
  }
  ASSIGN_OR_RETURN(q_indptr_, Copy(engine_, q_indptr));
  ASSIGN_OR_RETURN(kv_lens_,
                   Copy(engine_, std::vector<int32_t>(batch, shape_.kv_len)));
  ASSIGN_OR_RETURN(
      q_, TargetBuffer::Allocate(engine_, static_cast<int64_t>(rows_.q.size()) *
                                              batch * shape_.q_len));
  RETURN_IF_ERROR(bench::FillRepeating(engine_, q_, rows_.q));
  ASSIGN_OR_RETURN(sinks_, Copy(engine_, rows_.sinks));
  ASSIGN_OR_RETURN(slopes_, Copy(engine_, rows_.alibi_slopes));
  if (masked) {
    ASSIGN_OR_RETURN(mask_,
                     TargetBuffer::Allocate(engine_, mask_bytes * batch));
    RETURN_IF_ERROR(mask_.Fill(0xFF));
    ASSIGN_OR_RETURN(mask_indptr_, Copy(engine_, mask_indptr));
  }
  if (spec_.sparse_block == 0) return absl::OkStatus();
  std::vector<int32_t> selected;
  const int64_t blocks = CeilDiv(shape_.kv_len, spec_.sparse_block);
  selected_per_head_ = static_cast<int>(CeilDiv(blocks, 2));
  for (int i = 0; i < batch * shape_.num_kv_heads; ++i) {
    for (int block = 0; block < blocks; block += 2) selected.push_back(block);
  }
  ASSIGN_OR_RETURN(selected_, Copy(engine_, selected));
  return absl::OkStatus();
}

AttentionArgs TimingProblem::Args(int64_t index) const {
  AttentionArgs args = {};
  args.q = q_.as<const unsigned char>();
  args.q_head_stride = int64_t{spec_.head_dim} * DTypeBytes(spec_.type);
  args.q_token_stride = args.q_head_stride * rows_.num_q_heads;
  args.q_indptr = q_indptr_.as<const int>();
  args.kv_lens = kv_lens_.as<const int>();
  args.page_table =
      page_tables_.as<const int>() + index % sets_ * shape_.batch * width_;
  args.page_table_stride = width_;
  for (const CacheSide side : {CacheSide::kKey, CacheSide::kValue}) {
    const TargetBuffer* planes = planes_[static_cast<int>(side)];
    CacheView view = MakeCacheView(geometry_, side, planes[0].data(),
                                   planes[1].data(), planes[2].data());
    const bool key = side == CacheSide::kKey;
    view.scale = (key ? rows_.k : rows_.v).given_scale;
    view.scale_ptr = given_[static_cast<int>(side)].as<const float>();
    (key ? args.k : args.v) = view;
  }
  args.sinks = sinks_.as<const float>();
  args.alibi_slopes = slopes_.as<const float>();
  args.custom_mask = mask_.as<const unsigned char>();
  args.mask_indptr = mask_indptr_.as<const int>();
  args.selected = selected_.as<const int>();
  args.selected_per_head = selected_per_head_;
  args.sm_scale = rows_.sm_scale;
  args.batch = shape_.batch;
  args.num_kv_heads = shape_.num_kv_heads;
  args.total_q = shape_.batch * shape_.q_len;
  return args;
}

}  // namespace kvforge::tune

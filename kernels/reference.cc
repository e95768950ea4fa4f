#include "kernels/reference.h"

#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kvforge {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

absl::Status CheckSize(absl::string_view name, size_t size, int64_t expected) {
  if (static_cast<int64_t>(size) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "reference: ", name, " has ", size, " elements; its shape takes ",
      expected, "; pass the whole tensor of the sequence"));
}

absl::Status CheckShapes(const ReferenceParams& params,
                         const ReferenceSequence& sequence) {
  if (params.num_kv_heads < 1 || params.num_q_heads < 1 ||
      params.num_q_heads % params.num_kv_heads != 0 || params.head_dim < 1 ||
      params.v_head_dim < 1 || sequence.q_len < 0 || sequence.kv_len < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reference: ", params.num_q_heads, " q heads, ", params.num_kv_heads,
        " kv heads, head_dims ", params.head_dim, " and ", params.v_head_dim,
        ", lengths ", sequence.q_len, " and ", sequence.kv_len,
        "; kv heads divide q heads and lengths are not negative; correct the "
        "shapes"));
  }
  const int64_t m = sequence.q_len;
  const int64_t n = sequence.kv_len;
  absl::Status status;
  status.Update(CheckSize("q", sequence.q.size(),
                          m * params.num_q_heads * params.head_dim));
  status.Update(CheckSize("k", sequence.k.size(),
                          n * params.num_kv_heads * params.head_dim));
  status.Update(CheckSize("v", sequence.v.size(),
                          n * params.num_kv_heads * params.v_head_dim));
  if (!params.sinks.empty()) {
    status.Update(CheckSize("sinks", params.sinks.size(), params.num_q_heads));
  }
  if (!params.alibi_slopes.empty()) {
    status.Update(CheckSize("alibi_slopes", params.alibi_slopes.size(),
                            params.num_q_heads));
  }
  if (!sequence.custom_mask.empty()) {
    status.Update(
        CheckSize("custom_mask", sequence.custom_mask.size(), (m * n + 7) / 8));
  }
  if (params.sparse_block > 0) {
    const int64_t lists = params.num_kv_heads;
    const int64_t length = static_cast<int64_t>(sequence.selected.size());
    status.Update(CheckSize("selected", sequence.selected.size(),
                            length / lists * lists));
  }
  return status;
}

bool IsSelected(const ReferenceParams& params,
                const ReferenceSequence& sequence, int kv_head, int key) {
  const size_t places = sequence.selected.size() / params.num_kv_heads;
  const int block = key / params.sparse_block;
  for (const int32_t chosen :
       sequence.selected.subspan(kv_head * places, places)) {
    if (chosen == block) return true;
  }
  return false;
}

bool IsVisible(const ReferenceParams& params, const ReferenceSequence& sequence,
               int token, int kv_head, int key) {
  const int64_t position =
      static_cast<int64_t>(sequence.kv_len) - sequence.q_len + token;
  if (!sequence.custom_mask.empty()) {
    const int64_t bit = static_cast<int64_t>(token) * sequence.kv_len + key;
    if ((sequence.custom_mask[bit / 8] >> (bit % 8) & 1) == 0) return false;
  } else if (params.causal && key > position) {
    return false;
  }
  if (params.window > 0 && key <= position - params.window) return false;
  return params.sparse_block == 0 || IsSelected(params, sequence, kv_head, key);
}

// One (query token, head) row into out [v_head_dim]; returns its lse.
double AttendRow(const ReferenceParams& params,
                 const ReferenceSequence& sequence, int token, int head,
                 absl::Span<double> out) {
  const int kv_heads = params.num_kv_heads;
  const int kv_head = head / (params.num_q_heads / kv_heads);
  const int64_t q_row = static_cast<int64_t>(token) * params.num_q_heads + head;
  const double* q = sequence.q.data() + q_row * params.head_dim;

  std::vector<double> scores(sequence.kv_len, kMinusInf);
  double highest = kMinusInf;
  bool any_logit = !params.sinks.empty();
  for (int key = 0; key < sequence.kv_len; ++key) {
    if (!IsVisible(params, sequence, token, kv_head, key)) continue;
    const int64_t k_row = static_cast<int64_t>(key) * kv_heads + kv_head;
    const double* k = sequence.k.data() + k_row * params.head_dim;
    double score = 0;
    for (int d = 0; d < params.head_dim; ++d) score += q[d] * k[d];
    score *= params.sm_scale;
    if (params.softcap > 0) {
      score = params.softcap * std::tanh(score / params.softcap);
    }
    const int position = sequence.kv_len - sequence.q_len + token;
    if (!params.alibi_slopes.empty()) {
      score += params.alibi_slopes[head] * static_cast<double>(key - position);
    }
    if (params.score_function) {
      score = params.score_function(score, position, key, head);
    }
    scores[key] = score;
    // A score of -inf hides the key as a mask does.
    any_logit = any_logit || score != kMinusInf;
    highest = std::fmax(highest, score);
  }
  if (!params.sinks.empty()) {
    highest = std::fmax(highest, params.sinks[head]);
  }
  if (!any_logit) return kMinusInf;

  double sum = 0;
  for (int key = 0; key < sequence.kv_len; ++key) {
    // A hidden key is skipped, not multiplied by 0: its V may be NaN.
    if (!IsVisible(params, sequence, token, kv_head, key)) continue;
    const double weight = std::exp(scores[key] - highest);
    sum += weight;
    const int64_t v_row = static_cast<int64_t>(key) * kv_heads + kv_head;
    const double* v = sequence.v.data() + v_row * params.v_head_dim;
    for (int d = 0; d < params.v_head_dim; ++d) out[d] += weight * v[d];
  }
  if (!params.sinks.empty()) sum += std::exp(params.sinks[head] - highest);
  for (double& value : out) value /= sum;
  return highest + std::log(sum);
}

}  // namespace

absl::StatusOr<ReferenceResult> ReferenceAttention(
    const ReferenceParams& params, const ReferenceSequence& sequence) {
  const absl::Status shapes = CheckShapes(params, sequence);
  if (!shapes.ok()) return shapes;
  const size_t rows = static_cast<size_t>(sequence.q_len) * params.num_q_heads;
  ReferenceResult result;
  result.out.assign(rows * params.v_head_dim, 0.0);
  result.lse.assign(rows, kMinusInf);
  for (int token = 0; token < sequence.q_len; ++token) {
    for (int head = 0; head < params.num_q_heads; ++head) {
      const size_t row = static_cast<size_t>(token) * params.num_q_heads + head;
      result.lse[row] =
          AttendRow(params, sequence, token, head,
                    absl::MakeSpan(result.out)
                        .subspan(row * params.v_head_dim, params.v_head_dim));
    }
  }
  return result;
}

absl::StatusOr<ReferenceResult> ReferenceMerge(
    int splits, int rows, int v_head_dim, absl::Span<const double> partial_out,
    absl::Span<const double> partial_lse) {
  const int64_t parts = static_cast<int64_t>(splits) * rows;
  absl::Status status =
      CheckSize("partial_out", partial_out.size(), parts * v_head_dim);
  status.Update(CheckSize("partial_lse", partial_lse.size(), parts));
  if (!status.ok()) return status;

  ReferenceResult result;
  result.out.assign(static_cast<size_t>(rows) * v_head_dim, 0.0);
  result.lse.assign(rows, kMinusInf);
  for (int row = 0; row < rows; ++row) {
    double highest = kMinusInf;
    for (int split = 0; split < splits; ++split) {
      highest = std::fmax(highest, partial_lse[split * rows + row]);
    }
    if (highest == kMinusInf) continue;
    double sum = 0;
    double* out = result.out.data() + static_cast<size_t>(row) * v_head_dim;
    for (int split = 0; split < splits; ++split) {
      const size_t part = static_cast<size_t>(split) * rows + row;
      if (partial_lse[part] == kMinusInf) continue;
      const double weight = std::exp(partial_lse[part] - highest);
      sum += weight;
      for (int d = 0; d < v_head_dim; ++d) {
        out[d] += weight * partial_out[part * v_head_dim + d];
      }
    }
    for (int d = 0; d < v_head_dim; ++d) out[d] /= sum;
    result.lse[row] = highest + std::log(sum);
  }
  return result;
}

}  // namespace kvforge

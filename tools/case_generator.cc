#include "tools/case_generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "compiler/formats/codec.h"
#include "compiler/formats/row_codec.h"
#include "kernels/reference.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int64_t kSparePages = 3;

// Appends `value` as `type` and returns what was stored.
float Append(DType type, float value, std::vector<uint8_t>& bytes) {
  const size_t at = bytes.size();
  bytes.resize(at + DTypeBytes(type));
  if (type == DType::kF32) {
    std::memcpy(bytes.data() + at, &value, 4);
    return value;
  }
  const uint16_t code =
      type == DType::kBf16 ? EncodeBf16(value) : EncodeF16(value);
  std::memcpy(bytes.data() + at, &code, 2);
  return type == DType::kBf16 ? DecodeBf16(code) : DecodeF16(code);
}

// Makes every row of a side: source, stored form, decoded values.
std::vector<double> MakeSide(int64_t tokens, int heads, DType type,
                             const ValueFunction& value, CaseSide& side) {
  std::vector<double> decoded;
  std::vector<float> row(side.head_dim);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int d = 0; d < side.head_dim; ++d) {
        row[d] = Append(type, value(t, h, d), side.source);
      }
      const GivenScales given = side.Given(h);
      const QuantizedRow stored = QuantizeRow(*side.format, row, given);
      side.codes.insert(side.codes.end(), stored.codes.begin(),
                        stored.codes.end());
      side.block_scale.insert(side.block_scale.end(),
                              stored.block_scales.begin(),
                              stored.block_scales.end());
      if (side.format->row_scale != RowScale::kNone) {
        side.row_scale.push_back(stored.row_scale);
      }
      if (side.format->row_scale == RowScale::kF32AndMinimum) {
        side.row_min.push_back(stored.row_min);
      }
      const std::vector<double> values =
          DequantizeRow(*side.format, stored, given);
      decoded.insert(decoded.end(), values.begin(), values.end());
    }
  }
  return decoded;
}

void PlacePages(const std::vector<int>& kv_lens, std::mt19937_64& random,
                AttentionCase& problem) {
  const int64_t page_size = problem.page_size;
  int64_t used = 0;
  problem.page_table_width = 1;
  for (int len : kv_lens) {
    const int64_t pages = (len + page_size - 1) / page_size;
    used += pages;
    problem.page_table_width = std::max(problem.page_table_width, pages);
  }
  problem.num_pages = used + kSparePages;
  std::vector<int32_t> free(problem.num_pages);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  problem.page_table.assign(kv_lens.size() * problem.page_table_width, -1);
  for (size_t b = 0; b < kv_lens.size(); ++b) {
    int32_t* row = problem.page_table.data() + b * problem.page_table_width;
    for (int64_t t = 0; t < kv_lens[b]; ++t) {
      if (t % page_size == 0) {
        row[t / page_size] = free.back();
        free.pop_back();
      }
      problem.slot_mapping.push_back(row[t / page_size] * page_size +
                                     t % page_size);
    }
  }
}

// The -1s of drawn lists: a few more places than there are blocks.
constexpr int kSpareEntries = 3;

void SelectBlocks(const CaseOptions& options, std::mt19937_64& random,
                  AttentionCase& problem) {
  problem.sparse_block = options.sparse_block;
  std::vector<std::vector<int>> lists;
  for (int b = 0; b < problem.batch(); ++b) {
    const int blocks =
        (options.kv_lens[b] + options.sparse_block - 1) / options.sparse_block;
    for (int h = 0; h < problem.num_kv_heads; ++h) {
      if (options.selected) {
        lists.push_back(options.selected(b, h));
        continue;
      }
      std::vector<int> list(blocks);
      std::iota(list.begin(), list.end(), 0);
      std::shuffle(list.begin(), list.end(), random);
      list.resize((blocks + 1) / 2);
      list.resize(list.size() + kSpareEntries, -1);
      std::shuffle(list.begin(), list.end(), random);
      lists.push_back(std::move(list));
    }
  }
  size_t longest = 0;
  for (const std::vector<int>& list : lists) {
    longest = std::max(longest, list.size());
  }
  problem.selected_per_head = static_cast<int>(longest);
  for (std::vector<int>& list : lists) {
    list.resize(longest, -1);
    problem.selected.insert(problem.selected.end(), list.begin(), list.end());
  }
}

void PackMask(const CaseOptions& options, AttentionCase& problem) {
  problem.mask_indptr.push_back(0);
  for (int b = 0; b < problem.batch(); ++b) {
    const int64_t kv_len = options.kv_lens[b];
    const int64_t bits = options.q_lens[b] * kv_len;
    const size_t begin = problem.custom_mask.size();
    problem.custom_mask.resize(begin + (bits + 7) / 8);
    for (int64_t bit = 0; bit < bits; ++bit) {
      if (options.mask(b, static_cast<int>(bit / kv_len),
                       static_cast<int>(bit % kv_len))) {
        problem.custom_mask[begin + bit / 8] |= 1 << bit % 8;
      }
    }
    problem.mask_indptr.push_back(
        static_cast<int32_t>(problem.custom_mask.size()));
  }
}

// Whether some query may see key j of sequence b.
bool IsNeeded(const CaseOptions& options, const AttentionCase& problem, int b,
              int j) {
  if (options.sparse_block > 0) {
    const size_t entries =
        static_cast<size_t>(problem.num_kv_heads) * problem.selected_per_head;
    const auto first = problem.selected.begin() + b * entries;
    if (std::find(first, first + entries, j / options.sparse_block) ==
        first + entries) {
      return false;
    }
  }
  if (!options.mask) return true;
  for (int t = 0; t < options.q_lens[b]; ++t) {
    if (options.mask(b, t, j)) return true;
  }
  return false;
}

// Takes tokens that no query may see out of the cache, and with a selection
// pages that hold none but these out of the page table.
void DropUnneeded(const CaseOptions& options, AttentionCase& problem) {
  int64_t token = 0;
  for (int b = 0; b < problem.batch(); ++b) {
    std::vector<bool> page_needed(problem.page_table_width);
    for (int j = 0; j < options.kv_lens[b]; ++j, ++token) {
      if (IsNeeded(options, problem, b, j)) {
        page_needed[j / problem.page_size] = true;
      } else {
        problem.slot_mapping[token] = -1;
      }
    }
    if (options.sparse_block == 0) continue;
    for (int64_t page = 0; page < problem.page_table_width; ++page) {
      if (page_needed[page]) continue;
      problem.page_table[b * problem.page_table_width + page] = -1;
    }
  }
}

absl::Status Answer(const CaseOptions& options, absl::Span<const double> q,
                    absl::Span<const double> k, absl::Span<const double> v,
                    AttentionCase& problem) {
  ReferenceParams params;
  params.num_q_heads = problem.num_q_heads;
  params.num_kv_heads = problem.num_kv_heads;
  params.head_dim = problem.k.head_dim;
  params.v_head_dim = problem.v.head_dim;
  params.sm_scale = problem.sm_scale;
  params.causal = problem.causal;
  params.window = problem.window;
  params.softcap = problem.softcap;
  params.sinks = problem.sinks;
  params.alibi_slopes = problem.alibi_slopes;
  params.sparse_block = problem.sparse_block;
  params.score_function = options.score_function;
  const size_t entries =
      static_cast<size_t>(problem.num_kv_heads) * problem.selected_per_head;
  const int64_t q_row = int64_t{problem.num_q_heads} * problem.k.head_dim;
  const int64_t k_row = int64_t{problem.num_kv_heads} * problem.k.head_dim;
  const int64_t v_row = int64_t{problem.num_kv_heads} * problem.v.head_dim;
  int64_t q_at = 0;
  int64_t kv_at = 0;
  for (size_t b = 0; b < options.kv_lens.size(); ++b) {
    ReferenceSequence sequence;
    sequence.q_len = options.q_lens[b];
    sequence.kv_len = options.kv_lens[b];
    sequence.q = q.subspan(q_at * q_row, sequence.q_len * q_row);
    sequence.k = k.subspan(kv_at * k_row, sequence.kv_len * k_row);
    sequence.v = v.subspan(kv_at * v_row, sequence.kv_len * v_row);
    if (problem.has_custom_mask()) {
      sequence.custom_mask =
          absl::MakeConstSpan(problem.custom_mask)
              .subspan(problem.mask_indptr[b],
                       problem.mask_indptr[b + 1] - problem.mask_indptr[b]);
    }
    sequence.selected =
        absl::MakeConstSpan(problem.selected).subspan(b * entries, entries);
    ASSIGN_OR_RETURN(const ReferenceResult result,
                     ReferenceAttention(params, sequence));
    problem.out.insert(problem.out.end(), result.out.begin(), result.out.end());
    problem.lse.insert(problem.lse.end(), result.lse.begin(), result.lse.end());
    q_at += sequence.q_len;
    kv_at += sequence.kv_len;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttentionCase> GenerateCase(const CaseOptions& options) {
  if (options.q_lens.size() != options.kv_lens.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "case: ", options.q_lens.size(), " q_lens and ", options.kv_lens.size(),
        " kv_lens; one of each a sequence is needed; make the lists equally "
        "long"));
  }
  AttentionCase problem;
  problem.name = options.name;
  ASSIGN_OR_RETURN(problem.k.format, FindFormat(options.format));
  problem.v.format = problem.k.format;
  if (!options.v_format.empty()) {
    ASSIGN_OR_RETURN(problem.v.format, FindFormat(options.v_format));
  }
  problem.k.head_dim = options.head_dim;
  problem.v.head_dim =
      options.v_head_dim > 0 ? options.v_head_dim : options.head_dim;
  problem.k.given_scale = options.k_scale;
  problem.v.given_scale = options.v_scale;
  problem.source_type = options.source_type;
  problem.query_type = options.query_type;
  problem.out_type = options.out_type;
  problem.num_q_heads = options.num_q_heads;
  problem.num_kv_heads = options.num_kv_heads;
  problem.page_size = options.page_size;
  problem.causal = options.causal && !options.mask;
  problem.window = options.window;
  problem.softcap = options.softcap;
  problem.score = options.score;
  problem.compute = options.compute;
  problem.sm_scale =
      options.sm_scale != 0
          ? options.sm_scale
          : 1.0f / std::sqrt(static_cast<float>(options.head_dim));

  std::mt19937_64 random(options.seed);
  std::normal_distribution<float> normal;
  const ValueFunction drawn = [&](int64_t, int, int) { return normal(random); };
  PlacePages(options.kv_lens, random, problem);
  problem.kv_lens.assign(options.kv_lens.begin(), options.kv_lens.end());
  problem.q_indptr.push_back(0);
  for (int len : options.q_lens) {
    problem.q_indptr.push_back(problem.q_indptr.back() + len);
  }
  for (int h = 0; options.sinks && h < options.num_q_heads; ++h) {
    problem.sinks.push_back(normal(random));
  }
  for (int h = 0; options.alibi && h < options.num_q_heads; ++h) {
    problem.alibi_slopes.push_back(
        std::exp2(-8.0f * (h + 1) / options.num_q_heads));
  }
  if (options.sparse_block > 0) SelectBlocks(options, random, problem);
  if (options.mask) PackMask(options, problem);
  if (options.sparse_block > 0 || options.mask) DropUnneeded(options, problem);
  for (CaseSide* side : {&problem.k, &problem.v}) {
    for (int h = 0; h < options.num_kv_heads; ++h) {
      const float scale = side->given_scale * static_cast<float>(1 + h);
      if (side->format->given_scale == GivenScale::kHead) {
        side->head_scale.push_back(scale);
      } else if (side->format->given_scale == GivenScale::kChannel) {
        // 16 to 1, no two neighbours alike.
        for (int d = 0; d < side->head_dim; ++d) {
          side->channel_scale.push_back(
              scale * std::exp2(static_cast<float>(d * 7 % 13) / 3 - 2));
        }
      }
    }
  }
  const std::vector<double> k =
      MakeSide(problem.tokens(), options.num_kv_heads, options.source_type,
               options.k ? options.k : drawn, problem.k);
  const std::vector<double> v =
      MakeSide(problem.tokens(), options.num_kv_heads, options.source_type,
               options.v ? options.v : drawn, problem.v);
  std::vector<double> q;
  const ValueFunction& query = options.q ? options.q : drawn;
  for (int64_t t = 0; t < problem.q_indptr.back(); ++t) {
    for (int h = 0; h < options.num_q_heads; ++h) {
      for (int d = 0; d < options.head_dim; ++d) {
        q.push_back(Append(options.query_type, query(t, h, d), problem.q));
      }
    }
  }
  RETURN_IF_ERROR(Answer(options, q, k, v, problem));
  return problem;
}

}  // namespace kvforge

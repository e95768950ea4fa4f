// One attention problem over a paged cache with its answers, on the host: read
// from a recorded file (tests/golden/README.md) or generated. Plain data.
#ifndef KVFORGE_TOOLS_ATTENTION_CASE_H_
#define KVFORGE_TOOLS_ATTENTION_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/formats/format.h"
#include "compiler/formats/row_codec.h"
#include "compiler/spec/kernel_spec.h"

namespace kvforge {

// K or V: source rows and what the store must write for each.
struct CaseSide {
  const KvFormat* format = nullptr;  // into kFormats
  int head_dim = 0;
  std::vector<uint8_t> source;       // source_type [tokens, kv heads, head_dim]
  std::vector<uint8_t> codes;        // [tokens, kv heads, CodeBytes]
  std::vector<float> row_scale;      // [tokens, kv heads]; empty if none
  std::vector<float> row_min;        // likewise
  std::vector<uint8_t> block_scale;  // [tokens, kv heads, BlockScaleBytes]
  float given_scale = 1;             // of formats with a tensor scale
  std::vector<float> head_scale;     // [kv heads]; of formats with head scales
  std::vector<float> channel_scale;  // [kv heads, head_dim]; likewise

  // Of the rows of one kv head, as the row codecs take it.
  GivenScales Given(int head) const {
    if (!channel_scale.empty()) {
      return absl::MakeConstSpan(channel_scale)
          .subspan(int64_t{head} * head_dim, head_dim);
    }
    return head_scale.empty() ? given_scale : head_scale[head];
  }
};

struct AttentionCase {
  std::string name;
  CaseSide k, v;
  DType source_type = DType::kBf16;
  DType query_type = DType::kBf16;
  DType out_type = DType::kBf16;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int page_size = 0;
  int64_t num_pages = 0;
  bool causal = true;
  int window = 0;     // 0 = none
  float softcap = 0;  // 0 = none
  float sm_scale = 1;
  int sparse_block = 0;  // tokens; 0 = no selection
  std::string score;     // KernelSpec::score; recorded cases have none
  Compute compute = Compute::k16Bit;  // of extend; recorded cases have this

  std::vector<uint8_t> q;             // query_type [total_q, q heads, head_dim]
  std::vector<int64_t> slot_mapping;  // [tokens]; < 0 skips
  // [batch, page_table_width]; -1 unused, and with a selection any page of
  // which nothing is selected
  std::vector<int32_t> page_table;
  int64_t page_table_width = 0;
  std::vector<int32_t> kv_lens;     // [batch]
  std::vector<int32_t> q_indptr;    // [batch + 1]
  std::vector<float> sinks;         // [q heads]; empty if none
  std::vector<float> alibi_slopes;  // likewise
  // Bits of sequence b from byte mask_indptr[b] on, as ReferenceSequence has
  // them; both empty if none. Then `causal` is false.
  std::vector<uint8_t> custom_mask;
  std::vector<int32_t> mask_indptr;  // [batch + 1]
  // [batch, kv heads, selected_per_head]; read if sparse_block > 0
  std::vector<int32_t> selected;
  int selected_per_head = 0;

  std::vector<float> out;  // [total_q, q heads, v head_dim]
  std::vector<float> lse;  // [total_q, q heads], natural log

  int batch() const { return static_cast<int>(kv_lens.size()); }
  int64_t tokens() const { return static_cast<int64_t>(slot_mapping.size()); }
  int64_t total_q() const;
  bool has_custom_mask() const { return !mask_indptr.empty(); }
  int max_q_len() const;
  int64_t max_kv_len() const;
};

// The spec of `kernel` for this case over a cache of `order`. For merge: of
// decode's partial results. Errors are those of ValidateSpec and ParseSpec: a
// format, head_dim or feature that is not served, by name.
absl::StatusOr<KernelSpec> CaseSpec(const AttentionCase& problem,
                                    KernelKind kernel, SlotOrder order);

// Whether decode kernels can have this case: every sequence has at most
// kMaxDecodeTokens queries, and the operands are decode's, of 16 bits.
bool FitsDecode(const AttentionCase& problem);

// Reads a recorded case. kNotFound or kInvalidArgument with the file's name for
// one that is unreadable, not of the form or inconsistent.
absl::StatusOr<AttentionCase> ReadCase(const std::string& path);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_ATTENTION_CASE_H_

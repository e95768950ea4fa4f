// Makes attention cases from a description: rows quantized by the host codecs,
// answers by the double-precision reference over the decoded rows.
#ifndef KVFORGE_TOOLS_CASE_GENERATOR_H_
#define KVFORGE_TOOLS_CASE_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/attention_case.h"

namespace kvforge {

// A value of q, K or V by (token, head, element). Tokens count over the batch:
// rows of q, or stored tokens in order of sequence and position.
using ValueFunction = std::function<float(int64_t token, int head, int d)>;

struct CaseOptions {
  std::string name;
  std::string format = "e4m3_row";
  std::string v_format;  // "" = format
  int head_dim = 128;
  int v_head_dim = 0;  // 0 = head_dim
  int num_q_heads = 8;
  int num_kv_heads = 2;
  int page_size = 16;
  std::vector<int> q_lens;   // one a sequence; empty: no sequence
  std::vector<int> kv_lens;  // likewise
  bool causal = true;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  bool alibi = false;  // slopes 2^(-8 (h + 1) / q heads)
  // A custom mask in place of causal: whether query token t of sequence b sees
  // key j. Null: none. With it `causal` is not looked at.
  std::function<bool(int b, int t, int j)> mask;
  // A user's score function: its digest, and what it computes in double.
  std::string score;
  std::function<double(double score, int q_position, int kv_position,
                       int q_head)>
      score_function;
  Compute compute = Compute::k16Bit;  // of extend
  int sparse_block = 0;               // tokens; 0 = no selection
  // The selected blocks of (sequence, kv head); drawn if null: about half of
  // the blocks in any order, between -1s.
  std::function<std::vector<int>(int b, int kv_head)> selected;
  float sm_scale = 0;  // 0 = 1/sqrt(head_dim)
  float k_scale = 0.031f;
  float v_scale = 0.027f;
  DType source_type = DType::kBf16;
  DType query_type = DType::kBf16;
  DType out_type = DType::kBf16;
  uint64_t seed = 1;
  // Null: normal values. Rounded to the source or query type.
  ValueFunction q, k, v;
};

// Pages of the sequences are drawn at random from a pool that has some more.
// Tokens that no query sees through a mask or a selection are never stored, and
// with a selection pages that hold no other token are not in the page table.
// Errors: a format or head_dim that does not exist, lists of different length.
absl::StatusOr<AttentionCase> GenerateCase(const CaseOptions& options);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_CASE_GENERATOR_H_

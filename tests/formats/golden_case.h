// One file of tests/golden/attention; tests/golden/README.md has the form.
#ifndef KVFORGE_TESTS_FORMATS_GOLDEN_CASE_H_
#define KVFORGE_TESTS_FORMATS_GOLDEN_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/formats/format.h"
#include "compiler/formats/row_codec.h"
#include "kernels/reference.h"

namespace kvforge {

// K's or V's part of a case.
struct GoldenSide {
  const KvFormat* format = nullptr;
  int head_dim = 0;
  float given_scale = 0;
  std::vector<float> head_scale;   // [kv heads], GivenScale::kHead
  std::vector<float> source;       // [tokens, kv heads, head_dim]
  std::vector<QuantizedRow> rows;  // [tokens, kv heads], as stored

  float GivenScaleOf(int kv_head) const {
    return head_scale.empty() ? given_scale : head_scale[kv_head];
  }
};

struct GoldenCase {
  std::string name;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int page_size = 0;
  int num_tokens = 0;  // rows stored
  bool causal = true;
  int window = 0;
  double softcap = 0;
  double sm_scale = 1;
  int sparse_block = 0;
  GoldenSide k;
  GoldenSide v;
  std::vector<double> q;  // [Q, q heads, head_dim]
  std::vector<int64_t> slot_mapping;
  std::vector<int32_t> page_table;  // [batch, max_pages]
  int max_pages = 0;
  std::vector<int32_t> kv_lens;   // [batch]
  std::vector<int32_t> q_indptr;  // [batch + 1]
  std::vector<float> sinks;
  std::vector<float> alibi_slopes;
  std::vector<uint8_t> custom_mask;
  std::vector<int32_t> mask_indptr;
  std::vector<int32_t> selected;  // [batch, kv heads, places]
  std::vector<float> out;         // [Q, q heads, v head_dim]
  std::vector<float> lse;         // [Q, q heads]
};

// Paths of all recorded cases, sorted.
std::vector<std::string> GoldenCasePaths();

absl::StatusOr<GoldenCase> LoadGoldenCase(const std::string& path);

// The reference over the case's stored rows: [Q, ...] like out and lse.
absl::StatusOr<ReferenceResult> AttendGoldenCase(const GoldenCase& golden);

}  // namespace kvforge

#endif  // KVFORGE_TESTS_FORMATS_GOLDEN_CASE_H_

#include "tests/formats/golden_case.h"

#include <algorithm>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/formats/codec.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status_macros.h"
#include "tools/safetensors.h"

namespace kvforge {
namespace {

using Json = nlohmann::json;
using Shape = std::vector<int64_t>;

template <typename T>
absl::StatusOr<std::vector<T>> Read(const SafetensorsFile& file,
                                    absl::string_view name,
                                    absl::string_view dtype,
                                    const Shape& shape) {
  ASSIGN_OR_RETURN(const Tensor tensor, file.Find(name, dtype, shape));
  return tensor.Values<T>();
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadOptional(const SafetensorsFile& file,
                                            absl::string_view name,
                                            absl::string_view dtype,
                                            const Shape& shape) {
  if (!file.Has(name)) return std::vector<T>();
  return Read<T>(file, name, dtype, shape);
}

absl::StatusOr<std::vector<float>> ReadBf16(const SafetensorsFile& file,
                                            absl::string_view name,
                                            const Shape& shape) {
  ASSIGN_OR_RETURN(const std::vector<uint16_t> codes,
                   Read<uint16_t>(file, name, "BF16", shape));
  std::vector<float> values;
  for (const uint16_t code : codes) values.push_back(DecodeBf16(code));
  return values;
}

// Reads the tensors named prefix_*: "k" or "v".
absl::Status ReadSide(const SafetensorsFile& file, const std::string& prefix,
                      int64_t tokens, int64_t heads, GoldenSide& side) {
  const KvFormat& format = *side.format;
  const bool wide = format.code_bits == 16;
  const Shape per_row = {tokens, heads};
  ASSIGN_OR_RETURN(side.source, ReadBf16(file, prefix + "_src",
                                         {tokens, heads, side.head_dim}));
  absl::string_view dtype = "U8";
  if (wide) dtype = format.element == Element::kBf16 ? "BF16" : "F16";
  const int code_bytes = format.CodeBytes(side.head_dim);
  ASSIGN_OR_RETURN(
      const std::vector<uint8_t> codes,
      Read<uint8_t>(file, prefix + "_codes", dtype,
                    {tokens, heads, wide ? side.head_dim : code_bytes}));
  std::vector<float> scales, minima;
  std::vector<uint8_t> block_scales;
  if (format.row_scale != RowScale::kNone) {
    ASSIGN_OR_RETURN(scales,
                     Read<float>(file, prefix + "_row_scale", "F32", per_row));
  }
  if (format.row_scale == RowScale::kF32AndMinimum) {
    ASSIGN_OR_RETURN(minima,
                     Read<float>(file, prefix + "_row_min", "F32", per_row));
  }
  const int blocks = format.BlockScaleBytes(side.head_dim);
  if (blocks != 0) {
    ASSIGN_OR_RETURN(block_scales,
                     Read<uint8_t>(file, prefix + "_block_scale", "U8",
                                   {tokens, heads, blocks}));
  }
  if (format.given_scale == GivenScale::kHead) {
    ASSIGN_OR_RETURN(side.head_scale,
                     Read<float>(file, prefix + "_head_scale", "F32", {heads}));
  }
  for (int64_t row = 0; row < tokens * heads; ++row) {
    QuantizedRow stored;
    const auto code = codes.begin() + row * code_bytes;
    stored.codes.assign(code, code + code_bytes);
    if (!scales.empty()) stored.row_scale = scales[row];
    if (!minima.empty()) stored.row_min = minima[row];
    if (blocks != 0) {
      const auto block = block_scales.begin() + row * blocks;
      stored.block_scales.assign(block, block + blocks);
    }
    side.rows.push_back(std::move(stored));
  }
  return absl::OkStatus();
}

std::vector<double> DecodeRows(const GoldenSide& side, int num_kv_heads) {
  std::vector<double> values;
  for (size_t row = 0; row < side.rows.size(); ++row) {
    const std::vector<double> decoded =
        DequantizeRow(*side.format, side.rows[row],
                      side.GivenScaleOf(static_cast<int>(row) % num_kv_heads));
    values.insert(values.end(), decoded.begin(), decoded.end());
  }
  return values;
}

}  // namespace

std::vector<std::string> GoldenCasePaths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(KVFORGE_TEST_DATA, "/golden/attention"))) {
    if (entry.path().extension() == ".safetensors") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<GoldenCase> LoadGoldenCase(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  const auto text = file.metadata().find("case");
  if (text == file.metadata().end()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no metadata case"));
  }
  const Json meta = Json::parse(text->second, nullptr, false);
  if (!meta.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": case is not JSON"));
  }
  GoldenCase golden;
  golden.name = std::filesystem::path(path).stem().string();
  const std::string k_format = meta.value("format", "");
  ASSIGN_OR_RETURN(golden.k.format, FindFormat(k_format));
  ASSIGN_OR_RETURN(golden.v.format,
                   FindFormat(meta.value("v_format", k_format)));
  golden.k.head_dim = meta.value("head_dim", 0);
  golden.v.head_dim = meta.value("v_head_dim", golden.k.head_dim);
  golden.k.given_scale = meta.value("k_scale", 0.0f);
  golden.v.given_scale = meta.value("v_scale", 0.0f);
  golden.num_q_heads = meta.value("num_q_heads", 0);
  golden.num_kv_heads = meta.value("num_kv_heads", 0);
  golden.page_size = meta.value("page_size", 0);
  golden.causal = meta.value("causal", true);
  golden.window = meta.value("window", 0);
  golden.softcap = meta.value("softcap", 0.0);
  golden.sm_scale = meta.value("sm_scale", 0.0);
  golden.sparse_block = meta.value("sparse_block", 0);

  const int64_t q_heads = golden.num_q_heads;
  const int64_t kv_heads = golden.num_kv_heads;
  ASSIGN_OR_RETURN(golden.slot_mapping,
                   Read<int64_t>(file, "slot_mapping", "I64", {-1}));
  golden.num_tokens = static_cast<int>(golden.slot_mapping.size());
  RETURN_IF_ERROR(ReadSide(file, "k", golden.num_tokens, kv_heads, golden.k));
  RETURN_IF_ERROR(ReadSide(file, "v", golden.num_tokens, kv_heads, golden.v));

  ASSIGN_OR_RETURN(golden.kv_lens, Read<int32_t>(file, "kv_lens", "I32", {-1}));
  const int64_t batch = static_cast<int64_t>(golden.kv_lens.size());
  ASSIGN_OR_RETURN(golden.q_indptr,
                   Read<int32_t>(file, "q_indptr", "I32", {batch + 1}));
  const int64_t queries = golden.q_indptr.back();
  ASSIGN_OR_RETURN(const std::vector<float> q,
                   ReadBf16(file, "q", {queries, q_heads, golden.k.head_dim}));
  golden.q.assign(q.begin(), q.end());
  ASSIGN_OR_RETURN(golden.page_table,
                   Read<int32_t>(file, "page_table", "I32", {batch, -1}));
  golden.max_pages =
      batch == 0 ? 0 : static_cast<int>(golden.page_table.size() / batch);
  ASSIGN_OR_RETURN(
      golden.out,
      Read<float>(file, "out", "F32", {queries, q_heads, golden.v.head_dim}));
  ASSIGN_OR_RETURN(golden.lse,
                   Read<float>(file, "lse", "F32", {queries, q_heads}));
  ASSIGN_OR_RETURN(golden.sinks,
                   ReadOptional<float>(file, "sinks", "F32", {q_heads}));
  ASSIGN_OR_RETURN(golden.alibi_slopes,
                   ReadOptional<float>(file, "alibi_slopes", "F32", {q_heads}));
  ASSIGN_OR_RETURN(golden.custom_mask,
                   ReadOptional<uint8_t>(file, "custom_mask", "U8", {-1}));
  ASSIGN_OR_RETURN(
      golden.mask_indptr,
      ReadOptional<int32_t>(file, "mask_indptr", "I32", {batch + 1}));
  ASSIGN_OR_RETURN(
      golden.selected,
      ReadOptional<int32_t>(file, "selected", "I32", {batch, kv_heads, -1}));
  return golden;
}

absl::StatusOr<ReferenceResult> AttendGoldenCase(const GoldenCase& golden) {
  ReferenceParams params;
  params.num_q_heads = golden.num_q_heads;
  params.num_kv_heads = golden.num_kv_heads;
  params.head_dim = golden.k.head_dim;
  params.v_head_dim = golden.v.head_dim;
  params.sm_scale = golden.sm_scale;
  params.causal = golden.causal;
  params.window = golden.window;
  params.softcap = golden.softcap;
  params.sparse_block = golden.sparse_block;
  params.sinks = golden.sinks;
  params.alibi_slopes = golden.alibi_slopes;
  const std::vector<double> k = DecodeRows(golden.k, golden.num_kv_heads);
  const std::vector<double> v = DecodeRows(golden.v, golden.num_kv_heads);

  ReferenceResult all;
  const size_t batch = golden.kv_lens.size();
  size_t first_key = 0;
  for (size_t b = 0; b < batch; ++b) {
    ReferenceSequence sequence;
    const size_t first_query = golden.q_indptr[b];
    sequence.q_len = golden.q_indptr[b + 1] - golden.q_indptr[b];
    sequence.kv_len = golden.kv_lens[b];
    const size_t q_width = golden.num_q_heads * golden.k.head_dim;
    const size_t k_width = golden.num_kv_heads * golden.k.head_dim;
    const size_t v_width = golden.num_kv_heads * golden.v.head_dim;
    // Stored rows are in order of sequence and position, as kv_lens count them.
    sequence.q = absl::MakeConstSpan(golden.q).subspan(
        first_query * q_width, sequence.q_len * q_width);
    sequence.k = absl::MakeConstSpan(k).subspan(first_key * k_width,
                                                sequence.kv_len * k_width);
    sequence.v = absl::MakeConstSpan(v).subspan(first_key * v_width,
                                                sequence.kv_len * v_width);
    if (!golden.mask_indptr.empty()) {
      sequence.custom_mask =
          absl::MakeConstSpan(golden.custom_mask)
              .subspan(golden.mask_indptr[b],
                       golden.mask_indptr[b + 1] - golden.mask_indptr[b]);
    }
    if (!golden.selected.empty()) {
      const size_t lists = golden.selected.size() / batch;
      sequence.selected =
          absl::MakeConstSpan(golden.selected).subspan(b * lists, lists);
    }
    ASSIGN_OR_RETURN(const ReferenceResult result,
                     ReferenceAttention(params, sequence));
    all.out.insert(all.out.end(), result.out.begin(), result.out.end());
    all.lse.insert(all.lse.end(), result.lse.begin(), result.lse.end());
    first_key += sequence.kv_len;
  }
  return all;
}

}  // namespace kvforge

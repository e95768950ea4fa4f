// ReadCase: recorded cases, checked so that nothing later indexes outside a
// tensor.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "tools/attention_case.h"
#include "tools/safetensors.h"

namespace kvforge {
namespace {

constexpr int64_t kAny = -1;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what,
                   "; tests/golden/README.md has the form of a case; "
                   "make the file again"));
}

// Fields of the JSON in metadata "case".
class Metadata {
 public:
  static absl::StatusOr<Metadata> Parse(const SafetensorsFile& file) {
    const auto text = file.metadata().find("case");
    if (text == file.metadata().end()) return Bad("metadata has no 'case'");
    Metadata metadata;
    metadata.json_ = nlohmann::json::parse(text->second, nullptr,
                                           /*allow_exceptions=*/false);
    if (!metadata.json_.is_object()) {
      return Bad("metadata 'case' is not a JSON object");
    }
    return metadata;
  }

  bool Has(const char* name) const {
    const auto field = json_.find(name);
    return field != json_.end() && !field->is_null();
  }

  absl::StatusOr<int> Int(const char* name, int low, int high) const {
    ASSIGN_OR_RETURN(const double value, Number(name));
    if (value != std::floor(value) || value < low || value > high) {
      return Bad(absl::StrCat("'", name, "' is ", value, ", not an integer of ",
                              low, " to ", high));
    }
    return static_cast<int>(value);
  }

  absl::StatusOr<double> Number(const char* name) const {
    const auto field = json_.find(name);
    if (field == json_.end() || !field->is_number()) {
      return Bad(absl::StrCat("'", name, "' is not a number"));
    }
    return field->get<double>();
  }

  absl::StatusOr<bool> Bool(const char* name) const {
    const auto field = json_.find(name);
    if (field == json_.end() || !field->is_boolean()) {
      return Bad(absl::StrCat("'", name, "' is not true or false"));
    }
    return field->get<bool>();
  }

  absl::StatusOr<std::string> String(const char* name) const {
    const auto field = json_.find(name);
    if (field == json_.end() || !field->is_string()) {
      return Bad(absl::StrCat("'", name, "' is not a string"));
    }
    return field->get<std::string>();
  }

 private:
  nlohmann::json json_;
};

absl::StatusOr<DType> TypeOf(const SafetensorsFile& file, const char* name) {
  const auto tensor = file.tensors().find(name);
  if (tensor == file.tensors().end()) {
    return Bad(absl::StrCat("tensor '", name, "' is missing"));
  }
  const std::string& dtype = tensor->second.dtype;
  if (dtype == "BF16") return DType::kBf16;
  if (dtype == "F16") return DType::kF16;
  if (dtype == "F32") return DType::kF32;
  return Bad(absl::StrCat("tensor '", name, "' has type ", dtype,
                          ", not BF16, F16 or F32"));
}

const char* FileSpelling(DType type) {
  return type == DType::kBf16 ? "BF16" : type == DType::kF16 ? "F16" : "F32";
}

template <typename T>
absl::StatusOr<std::vector<T>> Values(const SafetensorsFile& file,
                                      const std::string& name,
                                      const char* dtype,
                                      absl::Span<const int64_t> shape) {
  ASSIGN_OR_RETURN(const Tensor tensor, file.Find(name, dtype, shape));
  return tensor.Values<T>();
}

absl::Status ReadSide(const SafetensorsFile& file, const std::string& side,
                      int64_t tokens, int num_kv_heads, DType source_type,
                      CaseSide& result) {
  const KvFormat& format = *result.format;
  const int64_t heads = num_kv_heads;
  const int head_dim = result.head_dim;
  ASSIGN_OR_RETURN(const Tensor source, file.Find(absl::StrCat(side, "_src"),
                                                  FileSpelling(source_type),
                                                  {tokens, heads, head_dim}));
  result.source.assign(source.bytes.begin(), source.bytes.end());
  const std::string codes_name = absl::StrCat(side, "_codes");
  const bool plain = format.code_bits == 16;
  const char* codes_type = format.element == Element::kBf16  ? "BF16"
                           : format.element == Element::kF16 ? "F16"
                                                             : "U8";
  const int64_t codes_width = plain ? head_dim : format.CodeBytes(head_dim);
  ASSIGN_OR_RETURN(const Tensor codes, file.Find(codes_name, codes_type,
                                                 {tokens, heads, codes_width}));
  result.codes.assign(codes.bytes.begin(), codes.bytes.end());
  if (format.row_scale != RowScale::kNone) {
    ASSIGN_OR_RETURN(result.row_scale,
                     Values<float>(file, absl::StrCat(side, "_row_scale"),
                                   "F32", {tokens, heads}));
  }
  if (format.row_scale == RowScale::kF32AndMinimum) {
    ASSIGN_OR_RETURN(result.row_min,
                     Values<float>(file, absl::StrCat(side, "_row_min"), "F32",
                                   {tokens, heads}));
  }
  if (format.block > 0) {
    ASSIGN_OR_RETURN(
        result.block_scale,
        Values<uint8_t>(file, absl::StrCat(side, "_block_scale"), "U8",
                        {tokens, heads, format.BlockScaleBytes(head_dim)}));
  }
  if (format.given_scale == GivenScale::kHead) {
    ASSIGN_OR_RETURN(
        result.head_scale,
        Values<float>(file, absl::StrCat(side, "_head_scale"), "F32", {heads}));
  }
  if (format.given_scale == GivenScale::kChannel) {
    ASSIGN_OR_RETURN(result.channel_scale,
                     Values<float>(file, absl::StrCat(side, "_channel_scale"),
                                   "F32", {heads, head_dim}));
  }
  return absl::OkStatus();
}

absl::Status ReadGeometry(const Metadata& metadata, AttentionCase& problem) {
  constexpr int kMax = std::numeric_limits<int>::max();
  ASSIGN_OR_RETURN(const std::string format, metadata.String("format"));
  ASSIGN_OR_RETURN(problem.k.format, FindFormat(format));
  problem.v.format = problem.k.format;
  if (metadata.Has("v_format")) {
    ASSIGN_OR_RETURN(const std::string v_format, metadata.String("v_format"));
    ASSIGN_OR_RETURN(problem.v.format, FindFormat(v_format));
  }
  ASSIGN_OR_RETURN(problem.k.head_dim, metadata.Int("head_dim", 1, 1 << 16));
  problem.v.head_dim = problem.k.head_dim;
  if (metadata.Has("v_head_dim")) {
    ASSIGN_OR_RETURN(problem.v.head_dim,
                     metadata.Int("v_head_dim", 1, 1 << 16));
  }
  ASSIGN_OR_RETURN(problem.num_q_heads,
                   metadata.Int("num_q_heads", 1, 1 << 16));
  ASSIGN_OR_RETURN(problem.num_kv_heads,
                   metadata.Int("num_kv_heads", 1, 1 << 16));
  if (problem.num_q_heads % problem.num_kv_heads != 0) {
    return Bad("'num_q_heads' is not a multiple of 'num_kv_heads'");
  }
  ASSIGN_OR_RETURN(problem.page_size, metadata.Int("page_size", 1, kMax));
  ASSIGN_OR_RETURN(problem.num_pages, metadata.Int("num_pages", 0, kMax));
  ASSIGN_OR_RETURN(problem.causal, metadata.Bool("causal"));
  ASSIGN_OR_RETURN(problem.window, metadata.Int("window", 0, kMax));
  ASSIGN_OR_RETURN(const double softcap, metadata.Number("softcap"));
  ASSIGN_OR_RETURN(const double sm_scale, metadata.Number("sm_scale"));
  ASSIGN_OR_RETURN(const double k_scale, metadata.Number("k_scale"));
  ASSIGN_OR_RETURN(const double v_scale, metadata.Number("v_scale"));
  problem.softcap = static_cast<float>(softcap);
  problem.sm_scale = static_cast<float>(sm_scale);
  problem.k.given_scale = static_cast<float>(k_scale);
  problem.v.given_scale = static_cast<float>(v_scale);
  if (metadata.Has("sparse_block")) {
    ASSIGN_OR_RETURN(problem.sparse_block,
                     metadata.Int("sparse_block", 1, kMax));
  }
  return absl::OkStatus();
}

// Page numbers, slots and offsets within bounds.
absl::Status CheckIndices(const AttentionCase& problem) {
  const int64_t slots = problem.num_pages * problem.page_size;
  for (int64_t slot : problem.slot_mapping) {
    if (slot >= slots) {
      return Bad(absl::StrCat("'slot_mapping' has slot ", slot, " of ", slots));
    }
  }
  if (problem.q_indptr[0] != 0 || problem.q_indptr.back() > problem.total_q()) {
    return Bad("'q_indptr' does not run from 0 to at most the rows of 'q'");
  }
  for (int b = 0; b < problem.batch(); ++b) {
    const int64_t kv_len = problem.kv_lens[b];
    if (problem.q_indptr[b + 1] < problem.q_indptr[b] || kv_len < 0) {
      return Bad(absl::StrCat("sequence ", b, " has a negative length"));
    }
    const int64_t pages = (kv_len + problem.page_size - 1) / problem.page_size;
    if (pages > problem.page_table_width) {
      return Bad(absl::StrCat("sequence ", b, " needs ", pages,
                              " pages, 'page_table' has ",
                              problem.page_table_width));
    }
    for (int64_t i = 0; i < pages; ++i) {
      const int32_t page = problem.page_table[b * problem.page_table_width + i];
      // Pages without a selected key may be freed; CheckSelected sees to it.
      if (page == -1 && problem.sparse_block > 0) continue;
      if (page < 0 || page >= problem.num_pages) {
        return Bad(absl::StrCat("'page_table' of sequence ", b, " has page ",
                                page, " of ", problem.num_pages));
      }
    }
  }
  return absl::OkStatus();
}

// The keys of every selected block lie in pages.
absl::Status CheckSelected(const AttentionCase& problem) {
  const int64_t lists = int64_t{problem.batch()} * problem.num_kv_heads;
  for (int64_t i = 0; i < lists * problem.selected_per_head; ++i) {
    const int64_t b = i / problem.selected_per_head / problem.num_kv_heads;
    const int64_t block = problem.sparse_block;
    const int64_t first = problem.selected[i] * block;
    const int64_t end = std::min<int64_t>(first + block, problem.kv_lens[b]);
    if (first < 0) continue;
    for (int64_t key = first; key < end; ++key) {
      const int64_t page = key / problem.page_size;
      if (problem.page_table[b * problem.page_table_width + page] == -1) {
        return Bad(absl::StrCat("sequence ", b, " has no page for key ", key,
                                " of selected block ", problem.selected[i]));
      }
    }
  }
  return absl::OkStatus();
}

// Slopes, custom mask and selected blocks, where the file has them.
absl::Status ReadVisibility(const SafetensorsFile& file,
                            AttentionCase& problem) {
  if (file.Has("alibi_slopes")) {
    ASSIGN_OR_RETURN(
        problem.alibi_slopes,
        Values<float>(file, "alibi_slopes", "F32", {problem.num_q_heads}));
  }
  if (file.Has("custom_mask") || file.Has("mask_indptr")) {
    ASSIGN_OR_RETURN(problem.custom_mask,
                     Values<uint8_t>(file, "custom_mask", "U8", {kAny}));
    ASSIGN_OR_RETURN(
        problem.mask_indptr,
        Values<int32_t>(file, "mask_indptr", "I32", {problem.batch() + 1}));
    if (problem.causal) return Bad("'causal' is true with a custom mask");
    for (int b = 0; b < problem.batch(); ++b) {
      const int64_t bits =
          int64_t{problem.q_indptr[b + 1] - problem.q_indptr[b]} *
          problem.kv_lens[b];
      const int64_t begin = problem.mask_indptr[b];
      const int64_t end = problem.mask_indptr[b + 1];
      const int64_t bytes = static_cast<int64_t>(problem.custom_mask.size());
      if (begin < 0 || end > bytes || end - begin < (bits + 7) / 8) {
        return Bad(absl::StrCat("the mask of sequence ", b, " is bytes ", begin,
                                " to ", end, " of ", bytes, " for ", bits,
                                " bits"));
      }
    }
  }
  if (file.Has("selected") != (problem.sparse_block > 0)) {
    return Bad("'sparse_block' and the tensor 'selected' do not agree");
  }
  if (problem.sparse_block == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Tensor selected,
                   file.Find("selected", "I32",
                             {problem.batch(), problem.num_kv_heads, kAny}));
  problem.selected = selected.Values<int32_t>();
  problem.selected_per_head = static_cast<int>(selected.shape[2]);
  return CheckSelected(problem);
}

absl::StatusOr<AttentionCase> Read(const SafetensorsFile& file) {
  AttentionCase problem;
  ASSIGN_OR_RETURN(const Metadata metadata, Metadata::Parse(file));
  RETURN_IF_ERROR(ReadGeometry(metadata, problem));
  ASSIGN_OR_RETURN(problem.source_type, TypeOf(file, "k_src"));
  ASSIGN_OR_RETURN(problem.query_type, TypeOf(file, "q"));
  problem.out_type = problem.query_type;
  ASSIGN_OR_RETURN(problem.slot_mapping,
                   Values<int64_t>(file, "slot_mapping", "I64", {kAny}));
  ASSIGN_OR_RETURN(problem.kv_lens,
                   Values<int32_t>(file, "kv_lens", "I32", {kAny}));
  const int64_t batch = problem.batch();
  ASSIGN_OR_RETURN(problem.q_indptr,
                   Values<int32_t>(file, "q_indptr", "I32", {batch + 1}));
  ASSIGN_OR_RETURN(const Tensor table,
                   file.Find("page_table", "I32", {batch, kAny}));
  problem.page_table = table.Values<int32_t>();
  problem.page_table_width = table.shape[1];
  for (auto [side, name] : {std::pair{&problem.k, "k"}, {&problem.v, "v"}}) {
    RETURN_IF_ERROR(ReadSide(file, name, problem.tokens(), problem.num_kv_heads,
                             problem.source_type, *side));
  }
  const int64_t heads = problem.num_q_heads;
  ASSIGN_OR_RETURN(const Tensor q,
                   file.Find("q", FileSpelling(problem.query_type),
                             {kAny, heads, problem.k.head_dim}));
  problem.q.assign(q.bytes.begin(), q.bytes.end());
  const int64_t total_q = q.shape[0];
  ASSIGN_OR_RETURN(
      problem.out,
      Values<float>(file, "out", "F32", {total_q, heads, problem.v.head_dim}));
  ASSIGN_OR_RETURN(problem.lse,
                   Values<float>(file, "lse", "F32", {total_q, heads}));
  ASSIGN_OR_RETURN(const bool sinks, metadata.Bool("sinks"));
  if (sinks != file.Has("sinks")) {
    return Bad("metadata 'sinks' and the tensor 'sinks' do not agree");
  }
  if (sinks) {
    ASSIGN_OR_RETURN(problem.sinks,
                     Values<float>(file, "sinks", "F32", {heads}));
  }
  RETURN_IF_ERROR(CheckIndices(problem));
  RETURN_IF_ERROR(ReadVisibility(file, problem));
  return problem;
}

}  // namespace

absl::StatusOr<AttentionCase> ReadCase(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  absl::StatusOr<AttentionCase> problem = Read(file);
  if (!problem.ok()) {
    return absl::Status(problem.status().code(),
                        absl::StrCat(path, ": ", problem.status().message()));
  }
  const size_t slash = path.rfind('/');
  problem->name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  problem->name = std::string(absl::StripSuffix(problem->name, ".safetensors"));
  return problem;
}

}  // namespace kvforge

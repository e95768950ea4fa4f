// The table of cache formats: the only list of them, read by the parser, the
// compiler, the memory model, the host codecs and the command.
//
// A format is an element (how one value is coded) and a scale layout (which
// dimensions of the cache the scales vary over). Everything else about it, such
// as where its scales go in an attention kernel, follows from these two.
#ifndef KVFORGE_COMPILER_FORMATS_FORMAT_H_
#define KVFORGE_COMPILER_FORMATS_FORMAT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kvforge {

// How one value is coded. Names are those of the IR's element types.
enum class Element { kBf16, kF16, kE4m3, kE5m2, kE2m1, kInt8, kUint4 };

// What a side of the cache stores beside the codes, per (token, kv head).
enum class RowScale { kNone, kF32, kF32AndMinimum };

// What one scale of a block along head_dim is coded as.
enum class BlockScale { kNone, kE4m3, kUe8m0 };

// A scale handed in by the caller and constant over the cache's tokens: one,
// one per kv head, or one per (kv head, channel).
enum class GivenScale { kNone, kTensor, kHead, kChannel };

struct KvFormat {
  absl::string_view name;  // spelling in IR, SPEC, cache keys, goldens, errors
  Element element;
  int code_bits;  // bits of one stored value: 4, 8 or 16
  RowScale row_scale;
  BlockScale block_scale;
  int block;  // values that share one block scale; 0 = none
  GivenScale given_scale;
  bool served;  // false: named and sized here, refused by every kernel

  // Bytes of the codes of one (token, kv head); head_dim is a multiple of 16.
  constexpr int CodeBytes(int head_dim) const {
    return head_dim * code_bits / 8;
  }
  // Bytes of the block scales of one (token, kv head).
  constexpr int BlockScaleBytes(int head_dim) const {
    return block ? head_dim / block : 0;
  }
  // Bytes of the f32 scale (and minimum) of one (token, kv head).
  constexpr int RowScaleBytes() const {
    return row_scale == RowScale::kNone  ? 0
           : row_scale == RowScale::kF32 ? 4
                                         : 8;
  }
  // Bytes per (token, kv head): codes and all sidecars, without padding.
  constexpr int RowBytes(int head_dim) const {
    return CodeBytes(head_dim) + BlockScaleBytes(head_dim) + RowScaleBytes();
  }
};

inline constexpr KvFormat kFormats[] = {
    {"bf16", Element::kBf16, 16, RowScale::kNone, BlockScale::kNone, 0,
     GivenScale::kNone, true},
    {"f16", Element::kF16, 16, RowScale::kNone, BlockScale::kNone, 0,
     GivenScale::kNone, true},
    {"e4m3_tensor", Element::kE4m3, 8, RowScale::kNone, BlockScale::kNone, 0,
     GivenScale::kTensor, true},
    {"e4m3_head", Element::kE4m3, 8, RowScale::kNone, BlockScale::kNone, 0,
     GivenScale::kHead, true},
    {"e4m3_channel", Element::kE4m3, 8, RowScale::kNone, BlockScale::kNone, 0,
     GivenScale::kChannel, true},
    {"e4m3_row", Element::kE4m3, 8, RowScale::kF32, BlockScale::kNone, 0,
     GivenScale::kNone, true},
    {"e5m2_tensor", Element::kE5m2, 8, RowScale::kNone, BlockScale::kNone, 0,
     GivenScale::kTensor, true},
    {"int8_row", Element::kInt8, 8, RowScale::kF32, BlockScale::kNone, 0,
     GivenScale::kNone, true},
    {"int4_row", Element::kUint4, 4, RowScale::kF32AndMinimum,
     BlockScale::kNone, 0, GivenScale::kNone, true},
    {"nvfp4_row", Element::kE2m1, 4, RowScale::kF32, BlockScale::kE4m3, 16,
     GivenScale::kNone, true},
    {"nvfp4", Element::kE2m1, 4, RowScale::kNone, BlockScale::kE4m3, 16,
     GivenScale::kTensor, true},
    {"mxfp8", Element::kE4m3, 8, RowScale::kNone, BlockScale::kUe8m0, 32,
     GivenScale::kNone, true},
    {"mxfp4", Element::kE2m1, 4, RowScale::kNone, BlockScale::kUe8m0, 32,
     GivenScale::kNone, true},
};

// The head_dims that a kernel is generated for: 64 to 256 in steps of 16, 512.
constexpr bool IsSupportedHeadDim(int head_dim) {
  return head_dim == 512 ||
         (head_dim >= 64 && head_dim <= 256 && head_dim % 16 == 0);
}

// Spelling of an element in IR types, such as "e4m3".
absl::string_view ElementName(Element element);

// The format of that name. kInvalidArgument names the ones that exist.
absl::StatusOr<const KvFormat*> FindFormat(absl::string_view name);

// OK if `format` can be used at `head_dim`; else what is supported instead:
// kUnimplemented for a format no kernel serves, kInvalidArgument for a head_dim
// outside IsSupportedHeadDim or not a multiple of the format's block.
absl::Status CheckFormat(const KvFormat& format, int head_dim);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_FORMATS_FORMAT_H_

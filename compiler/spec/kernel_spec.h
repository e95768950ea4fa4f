// SPEC: what one kernel is specialised over, and its one spelling in logs,
// cache keys, manifests and errors.
//
//   store/FORMAT/dD/gG/pageP/TYPE[/key=value...]      TYPE = source rows
//   decode/FORMAT/dD/gG/pageP/TYPE[/key=value...]     TYPE = q
//   extend/FORMAT/dD/gG/pageP/TYPE[/key=value...]
//   gather/FORMAT/dD/gG/pageP/TYPE[/key=value...]     TYPE = output rows
//   merge/dD/TYPE                                     TYPE = output
//
// Keys are sorted and left out at their default. What is not here (sm_scale,
// given scales, strides, lengths, pointers) is a launch argument.
#ifndef KVFORGE_COMPILER_SPEC_KERNEL_SPEC_H_
#define KVFORGE_COMPILER_SPEC_KERNEL_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/formats/format.h"

namespace kvforge {

enum class KernelKind { kStore, kDecode, kExtend, kMerge, kGather };
enum class DType { kF32, kBf16, kF16 };
enum class MaskKind { kCausal, kFull, kCustom };
enum class SlotOrder { kNhd, kHnd };
// Operands of the dots: 16-bit ones that codes decode to exactly, or the 8-bit
// floats that K and V hold, to whose like q and p are quantized.
enum class Compute { k16Bit, kFp8 };

inline constexpr int kMaxGroup = 128;        // q heads per kv head
inline constexpr int kMaxPageSize = 65536;   // tokens
inline constexpr int kMaxDecodeTokens = 16;  // q_max's upper end
inline constexpr int kScoreDigits = 32;      // of a score function's digest

struct KernelSpec {
  KernelKind kernel = KernelKind::kStore;
  const KvFormat* k_format = nullptr;  // into kFormats; null for merge
  const KvFormat* v_format = nullptr;  // key "v", default: K's
  int head_dim = 0;                    // of q and K; of V for merge
  int v_head_dim = 0;                  // key "dv", default: head_dim
  int group = 1;      // q heads per kv head; 1 for store, gather
  int page_size = 0;  // tokens per page; 0 for merge
  DType type = DType::kBf16;
  DType out = DType::kBf16;           // key "out", default: `type`
  MaskKind mask = MaskKind::kCausal;  // key "mask": causal, full, custom
  SlotOrder order = SlotOrder::kNhd;  // key "order": nhd, hnd
  int window = 0;                     // key "window": last W keys; 0 = all
  float softcap = 0;                  // key "softcap"; 0 = none
  bool sinks = false;                 // key "sinks": one logit per q head
  bool alibi = false;                 // key "alibi": one slope per q head
  Compute compute = Compute::k16Bit;  // key "compute": 16bit, fp8
  int sparse_block = 0;  // key "sparse": tokens of a selected block; 0 = all
  int q_max = 1;         // key "q_max": decode's tokens per row
  // key "score": digest of the user's score function (compiler.h,
  // ReadScoreFunction), which stands in place of softcap and alibi; "" = none
  std::string score;

  // Canonical spelling: ParseSpec(Text()) gives an equal spec.
  std::string Text() const;
  bool operator==(const KernelSpec&) const = default;
};

inline bool IsFp8(const KernelSpec& spec) {
  return spec.compute == Compute::kFp8;
}

// kInvalidArgument for text that is no SPEC or whose values no kernel has;
// kUnimplemented for formats and features that are named but not served.
// The message says which part, what is accepted and what to do.
absl::StatusOr<KernelSpec> ParseSpec(absl::string_view text);

// The same checks for a spec that was filled in by hand.
absl::Status ValidateSpec(const KernelSpec& spec);

absl::string_view KernelName(KernelKind kernel);  // "decode"
absl::string_view DTypeName(DType type);          // "bf16"
int DTypeBytes(DType type);
absl::StatusOr<DType> ParseDType(absl::string_view name);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_SPEC_KERNEL_SPEC_H_

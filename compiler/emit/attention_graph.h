// What the emitter prints of an attention kernel, read off its IR: the ops
// between the dots, the mask, the softmax and the yield, in order.
#ifndef KVFORGE_COMPILER_EMIT_ATTENTION_GRAPH_H_
#define KVFORGE_COMPILER_EMIT_ATTENTION_GRAPH_H_

#include <string>

#include "absl/status/statusor.h"
#include "compiler/dialect/kv_dialect.h"
#include "llvm/ADT/SmallVector.h"

namespace kvforge {

// One side of the cache as the template reads it.
struct CacheSide {
  kv::DecodeOp decode;
  bool row_scale = false;    // one f32 a token
  bool row_minimum = false;  // another behind it
  // One given f32 a channel: K's is on q, V's on the output.
  bool channel_scale = false;
  int block = 0;  // channels of one block scale; 0 = none
  // The scale of partial dots (K) or weights (V); null where the operand has
  // it.
  kv::LoadScaleOp block_factor;
};

struct AttentionGraph {
  using Ops = llvm::SmallVector<mlir::Operation*>;

  kv::LoadQOp q;
  bool row_scaled_q = false;
  CacheSide k, v;
  // kv.scale, kv.shift and kv.map, from the dot to alibi or the mask
  Ops score_ops;
  Ops weight_ops;       // kv.scale, from the softmax to the dot
  Ops out_ops;          // kv.scale and kv.shift, from the dot to the yield
  bool alibi = false;   // the last kv.map before the mask
  kv::MapOp score_map;  // the user's function there instead, or null
  kv::MaskOp mask;
  kv::SoftmaxOp softmax;
};

// Reads a kernel that kv-lower-codec has seen. kUnimplemented, by name, for IR
// that is right but that no template can serve (stored channel scales);
// kFailedPrecondition for IR that a pass is missing from.
absl::StatusOr<AttentionGraph> ReadAttention(kv::KernelOp kernel);

// A scale op's kind, given the side whose row scales may appear there.
enum class ScaleUse { kUniform, kRow, kBlock };
absl::StatusOr<ScaleUse> UseOf(kv::ScaleOp scale, llvm::StringRef side);

// "kv.shift has no template: <why>; <advice>".
absl::Status NoTemplate(mlir::Operation* op, const std::string& why,
                        const std::string& advice);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_EMIT_ATTENTION_GRAPH_H_

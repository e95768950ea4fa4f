// The algebra of dimension names that the kv operations obey. Verifiers check
// with it, the builder and the passes infer with it.
//
// A blocked dimension is absorbed by the whole one: scaling `m x d` by `d/16`
// gives `m x d`; scaling `m x n` by `n x e/32` gives `m x n x e/32`, and a dot
// of that with `n x e` over n gives `m x e`.
#ifndef KVFORGE_COMPILER_DIALECT_KV_SHAPES_H_
#define KVFORGE_COMPILER_DIALECT_KV_SHAPES_H_

#include "compiler/dialect/kv_types.h"
#include "llvm/ADT/ArrayRef.h"

namespace kvforge::kv {

// The entry of `dims` with that name, or null.
const Dim* FindDim(llvm::ArrayRef<Dim> dims, DimName name);

// True if nothing but h is in `dims`: one value for all of a kernel's tile.
bool IsUniform(llvm::ArrayRef<Dim> dims);

// True for h and one whole channel: a launch argument with one value per kv
// head and channel.
bool IsPerChannel(llvm::ArrayRef<Dim> dims);

// Dimensions of kv.scale: those of `value`, then the ones only `scale` has. h
// is dropped. Nothing if `value` has in blocks what `scale` has whole or in
// different blocks.
std::optional<Dims> ScaledDims(llvm::ArrayRef<Dim> value,
                               llvm::ArrayRef<Dim> scale);

// Dimensions of kv.dot over `reduce`, which both sides have whole: those of
// `lhs`, then those of `rhs`, then `reduce` itself if it is blocked (a partial
// dot keeps one entry per block). A dimension of both sides that is not reduced
// is allowed only blocked on the left and whole on the right. Else nothing.
std::optional<Dims> DotDims(llvm::ArrayRef<Dim> lhs, llvm::ArrayRef<Dim> rhs,
                            Dim reduce);

// `dims` without the dimension `reduce`, which must be there as spelled.
std::optional<Dims> SummedDims(llvm::ArrayRef<Dim> dims, Dim reduce);

// True if every dimension of `part` but h is in `whole`, as fine or finer.
bool Covers(llvm::ArrayRef<Dim> whole, llvm::ArrayRef<Dim> part);

}  // namespace kvforge::kv

#endif  // KVFORGE_COMPILER_DIALECT_KV_SHAPES_H_

// The kv dialect's types: shapes are lists of dimension names, not numbers. A
// pass asks which dimensions a value varies over; sizes matter to tiles only.
#ifndef KVFORGE_COMPILER_DIALECT_KV_TYPES_H_
#define KVFORGE_COMPILER_DIALECT_KV_TYPES_H_

#include <optional>
#include <string>

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Types.h"

namespace kvforge::kv {

// Spelled as their letter.
enum class DimName : char {
  kQuery = 'm',         // query rows: (token, q head of the group)
  kKey = 'n',           // keys: tokens of the cache
  kChannel = 'd',       // channels of q and K
  kValueChannel = 'e',  // channels of V and of the output
  kHead = 'h',          // kv head; constant inside a kernel's tile
  kSplit = 's',         // partial results of one output row
};

// One dimension: a name, and how many of its neighbours share an entry
// ("d/16").
struct Dim {
  DimName name;
  int block = 1;

  bool operator==(const Dim&) const = default;
  std::string Text() const;  // "n", "d/16"
};
inline llvm::hash_code hash_value(const Dim& dim) {
  return llvm::hash_combine(static_cast<char>(dim.name), dim.block);
}
using Dims = llvm::SmallVector<Dim, 4>;

// What one entry is. kF32 is the type of everything between two dots.
enum class ElementKind {
  kF32,
  kBf16,
  kF16,
  kE4m3,
  kE5m2,
  kE2m1,
  kI8,
  kU4,
  kUe8m0,
};

llvm::StringRef ElementText(ElementKind element);  // "e4m3"
std::optional<ElementKind> ParseElement(llvm::StringRef text);
int ElementBits(ElementKind element);

// "d" or "d/16"; nothing if it is neither.
std::optional<Dim> ParseDim(llvm::StringRef text);
std::string DimsText(llvm::ArrayRef<Dim> dims);  // "n x d/16"

}  // namespace kvforge::kv

#define GET_TYPEDEF_CLASSES
#include "compiler/dialect/KvTypes.h.inc"

#endif  // KVFORGE_COMPILER_DIALECT_KV_TYPES_H_

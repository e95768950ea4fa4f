#include "compiler/dialect/kv_shapes.h"

#include "llvm/ADT/STLExtras.h"

namespace kvforge::kv {

const Dim* FindDim(llvm::ArrayRef<Dim> dims, DimName name) {
  const Dim* at =
      llvm::find_if(dims, [&](const Dim& dim) { return dim.name == name; });
  return at == dims.end() ? nullptr : at;
}

bool IsUniform(llvm::ArrayRef<Dim> dims) {
  return llvm::all_of(
      dims, [](const Dim& dim) { return dim.name == DimName::kHead; });
}

bool IsPerChannel(llvm::ArrayRef<Dim> dims) {
  return dims.size() == 2 && dims[0] == Dim{DimName::kHead} &&
         (dims[1] == Dim{DimName::kChannel} ||
          dims[1] == Dim{DimName::kValueChannel});
}

std::optional<Dims> ScaledDims(llvm::ArrayRef<Dim> value,
                               llvm::ArrayRef<Dim> scale) {
  Dims result(value);
  for (const Dim& dim : scale) {
    if (dim.name == DimName::kHead) continue;
    const Dim* in_value = FindDim(value, dim.name);
    if (!in_value) {
      result.push_back(dim);
    } else if (in_value->block != 1 && *in_value != dim) {
      return std::nullopt;
    }
  }
  return result;
}

std::optional<Dims> DotDims(llvm::ArrayRef<Dim> lhs, llvm::ArrayRef<Dim> rhs,
                            Dim reduce) {
  const Dim whole{reduce.name};
  if (!llvm::is_contained(lhs, whole) || !llvm::is_contained(rhs, whole)) {
    return std::nullopt;
  }
  Dims result;
  for (const Dim& dim : lhs) {
    if (dim == whole) continue;
    const Dim* in_rhs = FindDim(rhs, dim.name);
    if (!in_rhs) {
      result.push_back(dim);
    } else if (dim.block == 1 || in_rhs->block != 1) {
      return std::nullopt;
    }
  }
  for (const Dim& dim : rhs) {
    if (dim != whole) result.push_back(dim);
  }
  if (reduce.block != 1) result.push_back(reduce);
  return result;
}

std::optional<Dims> SummedDims(llvm::ArrayRef<Dim> dims, Dim reduce) {
  Dims result;
  for (const Dim& dim : dims) {
    if (dim != reduce) result.push_back(dim);
  }
  if (result.size() == dims.size()) return std::nullopt;
  return result;
}

bool Covers(llvm::ArrayRef<Dim> whole, llvm::ArrayRef<Dim> part) {
  return llvm::all_of(part, [&](const Dim& dim) {
    if (dim.name == DimName::kHead) return true;
    const Dim* in_whole = FindDim(whole, dim.name);
    return in_whole && (in_whole->block == 1 || *in_whole == dim);
  });
}

}  // namespace kvforge::kv

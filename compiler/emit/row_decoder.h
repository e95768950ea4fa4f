// Prints how one side of a gather turns stored rows into values.
#ifndef KVFORGE_COMPILER_EMIT_ROW_DECODER_H_
#define KVFORGE_COMPILER_EMIT_ROW_DECODER_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/dialect/kv_dialect.h"

namespace kvforge {

struct RowDecoder {
  std::string text;               // struct KSide or VSide
  std::set<std::string> headers;  // include paths of what it calls
};

// The side that `store` writes, from its kv.dequant: code width, sidecars,
// Decode4, BlockScale, Scale and Value. kUnimplemented for scales that the
// template does not read, kFailedPrecondition in front of kv-lower-codec.
absl::StatusOr<RowDecoder> PrintRowDecoder(kv::StoreRowsOp store);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_EMIT_ROW_DECODER_H_

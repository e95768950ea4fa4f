// The row quantizers of templates/formats that a store kernel can name: the
// only list of them, and the choice from a kv.quantize op's types.
#ifndef KVFORGE_COMPILER_EMIT_ROW_QUANTIZERS_H_
#define KVFORGE_COMPILER_EMIT_ROW_QUANTIZERS_H_

#include <string>

#include "absl/status/statusor.h"
#include "compiler/dialect/kv_dialect.h"

namespace kvforge {

struct RowQuantizerUse {
  std::string header;  // include path
  std::string type;    // "formats::E4m3Row<formats::E4m3EncodePlaced>"
};

// kFailedPrecondition without an encoder; kUnimplemented, naming the formats
// there are, for types that no quantizer writes.
absl::StatusOr<RowQuantizerUse> FindRowQuantizer(kv::QuantizeOp op);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_EMIT_ROW_QUANTIZERS_H_

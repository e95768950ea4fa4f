// The last stage: IR to CUDA C++. Prints a block of constants and the generated
// device functions and names the template; docs/architecture.md, "The emitted
// text", is the definition.
#ifndef KVFORGE_COMPILER_EMIT_CUDA_EMITTER_H_
#define KVFORGE_COMPILER_EMIT_CUDA_EMITTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "compiler/dialect/kv_dialect.h"
#include "compiler/target/target.h"

namespace kvforge {

// The kernel that every template defines.
inline constexpr char kEntrySymbol[] = "kvforge_kernel";

// The text of a kernel that has its tile. Equal IR gives equal bytes.
// kUnimplemented for IR that no template serves, kFailedPrecondition for IR
// that a pass is missing from.
absl::StatusOr<std::string> EmitCuda(kv::KernelOp kernel,
                                     const GpuTarget& target);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_EMIT_CUDA_EMITTER_H_

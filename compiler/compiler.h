// Spec to text: the whole compiler behind one function. Needs LLVM at link
// time, but nothing of it shows here.
#ifndef KVFORGE_COMPILER_COMPILER_H_
#define KVFORGE_COMPILER_COMPILER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"

namespace kvforge {

// CUDA C++ that NVRTC and Clang both compile; its #includes name embedded
// templates (templates/embedded.h).
struct KernelText {
  std::string source;
  std::string entry_symbol;  // "kvforge_kernel"
  int block_threads = 0;
  int shared_bytes = 0;  // from the memory model
};

// Runs the pipeline: build IR, verify target, place scales, lower codec, choose
// tile (takes `tile` as the choice), emit. Thread safe; one MLIR context a
// call. `score`: the text of the function whose digest the spec has; any
// spelling of it.
absl::StatusOr<KernelText> CompileToText(const KernelSpec& spec,
                                         const GpuTarget& target,
                                         const Tile& tile,
                                         absl::string_view score = "");

// The text of one stage: "ir", "placed", "codec", "tiled" or "cuda".
absl::StatusOr<std::string> EmitStage(const KernelSpec& spec,
                                      const GpuTarget& target, const Tile& tile,
                                      absl::string_view stage,
                                      absl::string_view score = "");

// A user's score function as the compiler understands it. Two texts that differ
// in blanks, comments, names or unused operations have one digest.
struct ScoreFunction {
  std::string text;    // canonical MLIR
  std::string digest;  // KernelSpec::score
};

// kInvalidArgument for any text that is no score function (docs/score.md), with
// the line, what is allowed and what to do. Thread safe.
absl::StatusOr<ScoreFunction> ReadScoreFunction(absl::string_view text);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_COMPILER_H_

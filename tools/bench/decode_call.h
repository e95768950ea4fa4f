// The one place where the benchmark calls decode: kernels, splits, workspace.
#ifndef KVFORGE_TOOLS_BENCH_DECODE_CALL_H_
#define KVFORGE_TOOLS_BENCH_DECODE_CALL_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/decode.h"
#include "kernels/target_memory.h"
#include "tools/bench/case_table.h"

namespace kvforge::bench {

class DecodeCall {
 public:
  // `splits` 0: as the library chooses.
  static absl::StatusOr<DecodeCall> Create(Engine& engine,
                                           const BenchCase& bench_case,
                                           int splits);

  absl::Status Run(const AttentionArgs& args, void* stream) const;
  const PreparedKernel& kernel() const { return *kernels_.decode; }
  std::string Detail() const;  // "splits 4"

 private:
  DecodeKernels kernels_;
  TargetBuffer workspace_;
  int num_q_heads_ = 0;
  int splits_ = 0;
};

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_DECODE_CALL_H_

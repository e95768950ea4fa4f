// The one place where the benchmark calls decode: kernel, grid, workspace.
#ifndef KVFORGE_TOOLS_BENCH_DECODE_CALL_H_
#define KVFORGE_TOOLS_BENCH_DECODE_CALL_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/decode.h"
#include "kernels/target_memory.h"
#include "tools/bench/case_table.h"

namespace kvforge::bench {

class DecodeCall {
 public:
  // A 0 in `grid` and a missing tile are as the library chooses.
  static absl::StatusOr<DecodeCall> Create(Engine& engine,
                                           const BenchCase& bench_case,
                                           const DecodeGrid& grid,
                                           const std::optional<Tile>& tile);

  absl::Status Run(const AttentionArgs& args, void* stream) const;
  const PreparedKernel& kernel() const { return *kernel_; }
  std::string Detail() const;  // "132 blocks of 4 heads"

 private:
  std::shared_ptr<const PreparedKernel> kernel_;
  DecodeGrid grid_;
  TargetBuffer workspace_;
  int num_q_heads_ = 0;
};

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_DECODE_CALL_H_

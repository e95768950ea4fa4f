#include "tools/bench/decode_call.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge::bench {

absl::StatusOr<DecodeCall> DecodeCall::Create(Engine& engine,
                                              const BenchCase& bench_case,
                                              const DecodeGrid& grid,
                                              const std::optional<Tile>& tile) {
  DecodeCall call;
  ASSIGN_OR_RETURN(call.kernel_, tile ? engine.Prepare(bench_case.Spec(), *tile)
                                      : engine.Prepare(bench_case.Spec()));
  call.num_q_heads_ = bench_case.num_q_heads();
  const std::vector<int> kv_lens = bench_case.KvLens();
  DecodeSizes sizes;
  sizes.batch = bench_case.batch;
  sizes.num_kv_heads = kKvHeads;
  call.grid_ = ChooseDecodeGrid(engine, *call.kernel_, sizes);
  if (grid.blocks > 0) call.grid_.blocks = grid.blocks;
  if (grid.heads_per_block > 0) {
    call.grid_.heads_per_block = grid.heads_per_block;
  }
  ASSIGN_OR_RETURN(
      call.workspace_,
      TargetBuffer::Allocate(engine,
                             DecodeWorkspaceBytes(*call.kernel_, call.grid_)));
  RETURN_IF_ERROR(call.workspace_.Fill(0));  // its counters
  return call;
}

absl::Status DecodeCall::Run(const AttentionArgs& args, void* stream) const {
  DecodeParams params;
  params.args = args;
  params.num_q_heads = num_q_heads_;
  params.grid = grid_;
  params.workspace = workspace_.data();
  params.workspace_bytes = static_cast<int64_t>(workspace_.bytes());
  return RunDecode(*kernel_, params, stream);
}

std::string DecodeCall::Detail() const {
  return absl::StrCat(grid_.blocks, " blocks of ", grid_.heads_per_block,
                      " heads");
}

}  // namespace kvforge::bench

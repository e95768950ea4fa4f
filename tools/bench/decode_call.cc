#include "tools/bench/decode_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge::bench {

absl::StatusOr<DecodeCall> DecodeCall::Create(Engine& engine,
                                              const BenchCase& bench_case,
                                              int splits) {
  DecodeCall call;
  ASSIGN_OR_RETURN(call.kernels_, PrepareDecode(engine, bench_case.Spec()));
  call.num_q_heads_ = bench_case.num_q_heads();
  call.splits_ = splits;
  if (splits == 0) {
    const std::vector<int> kv_lens = bench_case.KvLens();
    DecodeSizes sizes;
    sizes.batch = bench_case.batch;
    sizes.num_kv_heads = kKvHeads;
    sizes.max_kv_len = *std::max_element(kv_lens.begin(), kv_lens.end());
    sizes.total_kv_len = bench_case.KvTokens();
    call.splits_ = ChooseSplits(engine, *call.kernels_.decode, sizes);
  }
  const int64_t rows = int64_t{bench_case.batch} * bench_case.q_len;
  ASSIGN_OR_RETURN(
      call.workspace_,
      TargetBuffer::Allocate(
          engine, DecodeWorkspaceBytes(bench_case.Spec(), rows,
                                       call.num_q_heads_, call.splits_)));
  return call;
}

absl::Status DecodeCall::Run(const AttentionArgs& args, void* stream) const {
  DecodeParams params;
  params.args = args;
  params.num_q_heads = num_q_heads_;
  params.splits = splits_;
  params.workspace = workspace_.data();
  params.workspace_bytes = static_cast<int64_t>(workspace_.bytes());
  return RunDecode(kernels_, params, stream);
}

std::string DecodeCall::Detail() const {
  return absl::StrCat("splits ", splits_);
}

}  // namespace kvforge::bench

// Prepares and runs a merge through the C++ interface.
#include <cstdio>

#include "all_headers.h"

namespace kvforge {

absl::Status Merge(float* merged) {
  ASSIGN_OR_RETURN(const auto engine, Engine::Create({}));
  ASSIGN_OR_RETURN(const KernelSpec spec, ParseSpec("merge/d64/f32"));
  ASSIGN_OR_RETURN(const auto kernel, engine->Prepare(spec));
  alignas(16) static float part[64], out[64];
  part[63] = 1.75f;
  const float lse = 0;
  MergeArgs args = {};
  args.partial_out = part;
  args.partial_lse = &lse;
  args.out = reinterpret_cast<unsigned char*>(out);
  args.out_row_stride = args.out_head_stride = sizeof(out);
  args.splits = args.rows = args.heads = 1;
  RETURN_IF_ERROR(RunMerge(*kernel, args, nullptr));
  *merged = out[63];
  return absl::OkStatus();
}

}  // namespace kvforge

int main() {
  float merged = 0;
  const absl::Status status = kvforge::Merge(&merged);
  std::printf("%s merged %g\n", status.ToString().c_str(), merged);
  return status.ok() && merged == 1.75f ? 0 : 1;
}

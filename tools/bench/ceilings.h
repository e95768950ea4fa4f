// What the GPU can do at most, measured in the process that measures kernels.
#ifndef KVFORGE_TOOLS_BENCH_CEILINGS_H_
#define KVFORGE_TOOLS_BENCH_CEILINGS_H_

#include "absl/status/statusor.h"
#include "kernels/engine.h"
#include "tools/bench/report.h"
#include "tools/bench/timing.h"

namespace kvforge::bench {

// Streams 2 GiB of random data, copies it, multiplies matrices. What the
// driver does not let measure is 0 and named in `missing` of the result.
// kResourceExhausted where the GPU has
// not 4 GiB left.
absl::StatusOr<Ceilings> MeasureCeilings(const Engine& engine, Timer& timer);

// The text of ceiling.ptx.
const char* CeilingPtx();

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_CEILINGS_H_

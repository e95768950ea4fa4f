// Bytes and operations of a case, counted from its shape alone: what the
// algorithm must move and compute, whatever a kernel does.
#ifndef KVFORGE_TOOLS_BENCH_COUNTS_H_
#define KVFORGE_TOOLS_BENCH_COUNTS_H_

#include <cstdint>

#include "tools/bench/case_table.h"

namespace kvforge::bench {

// decode, extend: codes and scales of K and V, each once; q, out and page
// tables are not counted. store: source rows read, codes and scales written,
// 8 bytes of slot a token. 0 for launch and specialise.
int64_t CountedBytes(const BenchCase& bench_case);

// decode, extend: 4 * head_dim * q heads * visible (query, key) pairs; a
// multiply and an add are two. 0 for the others.
double CountedFlops(const BenchCase& bench_case);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_COUNTS_H_

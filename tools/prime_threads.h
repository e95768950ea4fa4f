// How many kernels `kvforge prime` compiles at a time.
#ifndef KVFORGE_TOOLS_PRIME_THREADS_H_
#define KVFORGE_TOOLS_PRIME_THREADS_H_

#include <cstddef>
#include <cstdint>

namespace kvforge {

// What one compile may take at its peak.
inline constexpr int64_t kCompileBytes = int64_t{512} << 20;

struct Machine {
  int64_t cores = 1;
  int64_t free_bytes = 0;  // of memory
};
Machine ThisMachine();

// `asked` threads, or one a core where that is 0; no more than have memory for
// a compile each, or than there are jobs; at least one.
int PrimeThreads(int asked, size_t jobs, const Machine& machine);

}  // namespace kvforge

#endif  // KVFORGE_TOOLS_PRIME_THREADS_H_

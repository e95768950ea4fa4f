#include "tools/prime_threads.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

namespace kvforge {

Machine ThisMachine() {
  return {std::max(1u, std::thread::hardware_concurrency()),
          int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE)};
}

int PrimeThreads(int asked, size_t jobs, const Machine& machine) {
  int64_t threads = asked > 0 ? asked : machine.cores;
  threads = std::min(threads,
                     std::max<int64_t>(1, machine.free_bytes / kCompileBytes));
  return static_cast<int>(
      std::clamp<int64_t>(threads, 1, std::max<size_t>(jobs, 1)));
}

}  // namespace kvforge

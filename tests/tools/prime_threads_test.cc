#include "tools/prime_threads.h"

#include "gtest/gtest.h"

namespace kvforge {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

struct ThreadsCase {
  int asked;
  size_t jobs;
  Machine machine;
  int threads;
};

TEST(PrimeThreads, AreBoundedByCoresMemoryAndJobs) {
  for (const ThreadsCase& c :
       {ThreadsCase{0, 100, {8, 64 * kGiB}, 8},    // a core each
        ThreadsCase{32, 100, {8, 64 * kGiB}, 32},  // as asked
        ThreadsCase{0, 100, {8, 2 * kGiB}, 4},     // 2 GiB / 512 MiB
        ThreadsCase{32, 100, {8, 2 * kGiB}, 4},    // asking makes no memory
        ThreadsCase{0, 100, {8, kGiB / 4}, 1},     // too little for one
        ThreadsCase{0, 100, {8, -1}, 1},           // not known
        ThreadsCase{0, 3, {8, 64 * kGiB}, 3},      // three jobs
        ThreadsCase{0, 0, {8, 64 * kGiB}, 1}}) {
    EXPECT_EQ(PrimeThreads(c.asked, c.jobs, c.machine), c.threads)
        << c.asked << " " << c.jobs << " " << c.machine.cores << " "
        << c.machine.free_bytes;
  }
  EXPECT_GE(ThisMachine().cores, 1);
  EXPECT_GT(ThisMachine().free_bytes, 0);
}

}  // namespace
}  // namespace kvforge

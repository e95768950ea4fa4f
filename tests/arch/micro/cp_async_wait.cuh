// A ring of three stages over n steps of 64 words, two copies ahead:
// out[64 step + t] = in[64 step + 63 - t].
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 768;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  constexpr int kStages = 3;
  const int t = ThreadIndex();
  const auto copy = [&](int step) {
    if (step < args.n) {
      CpAsync<4>(SharedBase() + 256 * (step % kStages) + 4 * t,
                 args.in + 64 * step + t, true);
    }
    CpAsyncCommit();
  };
  for (int step = 0; step < kStages - 1; ++step) copy(step);
  for (int step = 0; step < args.n; ++step) {
    CpAsyncWait<kStages - 2>();
    BlockSync();
    copy(step + kStages - 1);
    Out(args, 64 * step + t,
        LoadShared<u32>(SharedBase() + 256 * (step % kStages) + 4 * (63 - t)));
  }
}

// Copies 31 bytes of each 32 by accesses of 16, 8, 4, 2 and 1 bytes.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 0;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  const unsigned char* in =
      reinterpret_cast<const unsigned char*>(args.in) + 32 * i;
  unsigned char* out = reinterpret_cast<unsigned char*>(args.out) + 32 * i;
  StoreGlobal(out, LoadGlobal<U32x4>(in));
  StoreGlobal(out + 16, LoadGlobal<U32x2>(in + 16));
  StoreGlobal(out + 24, LoadGlobal<float>(in + 24));
  StoreGlobal(out + 28, LoadGlobal<u16>(in + 28));
  StoreGlobal(out + 30, LoadGlobal<u8>(in + 30));
}

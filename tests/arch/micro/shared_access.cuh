// Copies 32 bytes a thread through shared memory: stores of 16, 8, 4, 2, 1 and
// 1 bytes, then loads of 1, 1, 2, 4, 8 and 16.
#include "micro/args.cuh"

extern "C" __constant__ int kvforge_block_threads = 64;
extern "C" __constant__ int kvforge_shared_bytes = 2048;

extern "C" __global__ void kvforge_kernel(
    const __grid_constant__ kvforge::MicroArgs args) {
  using namespace kvforge;
  using namespace kvforge::arch;
  const int i = static_cast<int>(BlockIndex()) * 64 + ThreadIndex();
  const u32 base = SharedBase() + 32 * ThreadIndex();
  const unsigned char* in =
      reinterpret_cast<const unsigned char*>(args.in) + 32 * i;
  unsigned char* out = reinterpret_cast<unsigned char*>(args.out) + 32 * i;
  StoreShared(base, LoadGlobal<U32x4>(in));
  StoreShared(base + 16, LoadGlobal<U32x2>(in + 16));
  StoreShared(base + 24, LoadGlobal<u32>(in + 24));
  StoreShared(base + 28, LoadGlobal<u16>(in + 28));
  StoreShared(base + 30, LoadGlobal<u8>(in + 30));
  StoreShared(base + 31, LoadGlobal<u8>(in + 31));
  StoreGlobal(out, LoadShared<u8>(base));
  StoreGlobal(out + 1, LoadShared<u8>(base + 1));
  StoreGlobal(out + 2, LoadShared<u16>(base + 2));
  StoreGlobal(out + 4, LoadShared<u32>(base + 4));
  StoreGlobal(out + 8, LoadShared<U32x2>(base + 8));
  StoreGlobal(out + 16, LoadShared<U32x4>(base + 16));
}

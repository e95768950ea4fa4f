// extend on warpgroups (sm_90a): what kernels/extend.cuh computes, with codes
// turned into operands once a block and multiplied 64 query rows at a time.
//
//   grid   as of kernels/extend.cuh
//   block  kBlockM = 128 query rows (token, head of the group) of one kv head:
//          two consumer warpgroups, then one of feeders, which pass on the keys
//          as kernels/extend/ring.cuh says
//
// Shared memory: kStages slots of images (K and V alike), q as an image a
// warpgroup, the slots' row terms, raw places, barriers.
#include "kernels/extend/consumer.cuh"
#include "kernels/extend/feeder.cuh"
#include "kernels/extend/output.cuh"
#include "kernels/extend/plan.cuh"
#include "kernels/extend/queries.cuh"

namespace kvforge::kernels {

// Registers a thread of each kind keeps: together what the block is launched
// with. Feeders read a custom mask, too.
inline constexpr int kFeederRegisters = spec::kCustomMask ? 120 : 72;
inline constexpr int kConsumerRegisters = spec::kCustomMask ? 192 : 216;

// Each kind of warp reads the sequence's facts for itself: none has registers
// for what another needs.
__device__ __forceinline__ void ExtendRows(const AttentionArgs& args, int batch,
                                           int kv_head, int row0) {
  const int warp = arch::ThreadIndex() / 32;
  const int lane = arch::ThreadIndex() % 32;
  const ExtendRing ring = {arch::SharedBase()};
  if (arch::ThreadIndex() == 0) ring.Init();
  arch::BlockSync();
  if (warp >= spec::kWarps) {
    arch::LowerRegisters<kFeederRegisters>();
    const ops::Sequence sequence(args, batch, kv_head);
    const ExtendWork work(sequence, row0);
    Feeder feeder = {args, sequence, work, ring, warp % 4, lane};
    feeder.Feed();
    return;
  }
  arch::RaiseRegisters<kConsumerRegisters>();
  const ops::Sequence sequence(args, batch, kv_head);
  const ExtendWork work(sequence, row0);
  const u32 query = ring.shared + ExtendRing::kQuery;
  Consumer consumer = {args, sequence, work, ring, warp / 4, lane, 0, query};
  LoadQueries<QueryImages>(args, sequence, row0, warp, lane, query,
                           consumer.state);
  arch::AsyncFence();
  arch::NamedSync(kConsumerBarrier + warp / 4, ExtendRing::kGroupThreads);
  if (warp / 4 == 1) Consumer::PassTurn(1);
  consumer.Attend();
  if (warp / 4 == 0) Consumer::WaitForTurn(0);
  const ops::Sequence again(
      args, batch, static_cast<int>(arch::BlockIndex() % args.num_kv_heads));
  WriteRows(args, again, warp, lane, consumer.state);
}

}  // namespace kvforge::kernels

extern "C" __constant__ int kvforge_shared_bytes =
    kvforge::kernels::ExtendRing::kSharedBytes;
extern "C" __constant__ int kvforge_block_threads =
    kvforge::kernels::ExtendRing::kThreads;

extern "C" __global__ void __launch_bounds__(
    kvforge::kernels::ExtendRing::kThreads, 1)
    kvforge_kernel(const __grid_constant__ kvforge::AttentionArgs args) {
  using namespace kvforge;
  const i64 tile = arch::BlockIndex() / args.num_kv_heads;
  const int kv_head = static_cast<int>(arch::BlockIndex() % args.num_kv_heads);
  const kernels::TileOfBatch found =
      kernels::FindTile(args, tile, arch::ThreadIndex() % 32);
  if (found.batch < 0) return;
  const ops::Sequence sequence(args, found.batch, kv_head);
  const int row0 = found.tile * spec::kBlockM;
  if (row0 >= sequence.q_len * spec::kGroup) return;
  kernels::ExtendRows(args, found.batch, kv_head, row0);
}

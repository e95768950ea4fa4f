// The exact shared memory of a kernel, as a pure function: no GPU, no compiler.
//
// The templates compute the same number from their own layout and export it;
// tests compare the two for every kernel, format, head_dim, tile and GPU.
//
//   codes       rows of whole 64-byte lines densely, swizzled; others at a
//   pitch
//               of 16 * (ceil(bytes / 16) | 1): an odd number of 16-byte units,
//               so that what a warp reads lies in all 32 banks
//   scales      of a key: its row scale (4 bytes a number) and its block scales
//               rounded up to 4 bytes
//   decode      stages * (K codes + V codes of 16 * warps keys, each rounded up
//               to 1024, + 16 * warps * scales) + Q
//               + warps * block_m * (64 * 4 + 8 + 16)
//               + stages * (16 * warps + 16) + 64
//               Q = block_m * head_dim * 2 above head_dim 256, else 0; 64
//               channels at a time of the partial outputs that the warps
//               exchange; notes and barriers; the block's share of the work
//   extend      block_m * head_dim * 2 for Q
//               + stages * block_n * (K and V codes and scales)
//               others with warpgroups and with compute=fp8: memory_model.cc
//   store, merge  none
#ifndef KVFORGE_COMPILER_TILE_MEMORY_MODEL_H_
#define KVFORGE_COMPILER_TILE_MEMORY_MODEL_H_

#include <cstdint>

#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile.h"

namespace kvforge {

inline constexpr int kDecodeKeysPerStep = 16;  // keys of one stage of one warp

// Dynamic shared bytes one block of `spec` with `tile` asks for. No kernel has
// static shared memory.
int SharedBytes(const KernelSpec& spec, const Tile& tile);

// A bound on the 32-bit registers a thread of the kernel holds at once, counted
// from its fragments: accumulators, scores, operands, addresses.
int RegistersPerThread(const KernelSpec& spec, const Tile& tile);

// Threads of a block: 32 for each of the tile's warps and, in decode, for each
// warp that only copies.
int BlockThreads(const KernelSpec& spec, const Tile& tile);

// Registers a thread may have: 255, or what one block's share of the register
// file leaves, rounded down to the allocation unit of 8.
int RegisterLimit(const KernelSpec& spec, const Tile& tile,
                  const GpuTarget& target);

// Warps of an extend block that share their query rows and split the columns
// of the output: one for each 256 of them.
int ExtendDimSplit(int v_head_dim);

// Warps of a decode block that copy keys, and as many values. They take turns
// at the stages, of which there are no fewer: the parity that one waits for
// tells its use of a stage from the use before only if it missed none.
int DecodeSideProducers(const Tile& tile);

// The most kv heads that a decode block attends to at a time, a power of two: a
// warp each, or one where the block's warps share its query in shared memory.
int DecodeHeadsPerBlock(const KernelSpec& spec, const Tile& tile);

// Query rows of one warp of an extend block; 0 if the warps do not divide.
int ExtendWarpRows(const KernelSpec& spec, const Tile& tile);

// Whether the text of extend on warpgroups takes such a spec: head_dims of
// whole 128-byte lines of operands whose rows fit the registers, scales that an
// operand or a score takes, keys one after the other.
bool TakesWarpgroups(const KernelSpec& spec);

// Whether that text also takes its keys from images in a workspace.
bool TakesImages(const KernelSpec& spec);

// Bytes of that workspace for block_n keys of one kv head: K and V as 16-bit
// operands, and their row terms.
int64_t ImageSlotBytes(const KernelSpec& spec, const Tile& tile);
// And for what a block's rows of one kv head pass on to the next pass.
int64_t PassedStateBytes(const KernelSpec& spec, const Tile& tile);

// Cache rows one warp of the store kernel writes at a time: each lane takes 16
// elements, a row a power of two of lanes.
int StoreRowsPerWarp(const KernelSpec& spec);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_TILE_MEMORY_MODEL_H_

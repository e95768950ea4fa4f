#include "compiler/tile/memory_model.h"

#include <algorithm>

namespace kvforge {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kMaxRegisters = 255;
constexpr int kRegisterUnit = 8;
constexpr int kOutputColumnsPerWarp = 256;
constexpr int kDecodeQueryRegistersHeadDim = 256;
// 64 f32 channels, a pad and four facts.
constexpr int kDecodeExchangeRowBytes = 64 * 4 + 8 + 16;
// What the last block is told by, and the block's share of the work.
constexpr int kDecodeShareBytes = 16 + 48;
constexpr int kDecodeCodesAlignment = 1024;

// Operands of the running product, softmax state, addresses and counters.
constexpr int kExtendOtherRegisters = 56;
constexpr int kExtendPartialDotRegisters = 8;
constexpr int kExtendE5m2Registers = 8;
constexpr int kDecodeOtherRegisters = 28;
constexpr int kDecodeRowTileRegisters = 32;  // softmax and scores of 8 rows
// ALiBi, a score function, a custom mask and a selection, each: facts of a
// thread's rows, and what finds the keys.
constexpr int kExtendFeatureRegisters = 8;   // of 32 rows a warp
constexpr int kDecodeFeatureRegisters = 16;  // of 8 rows
// kConsumerRegisters of kernels/extend_warpgroups.cuh and extend_images.cuh,
// and what a consumer takes besides its fragments.
constexpr int kWarpgroupConsumerRegisters = 216;
constexpr int kWarpgroupMaskConsumerRegisters = 192;
constexpr int kImagesConsumerRegisters = 232;
constexpr int kWarpgroupOtherRegisters = 40;
constexpr int kWarpgroupRowScaleRegisters = 10;
// Feeders that copy scales of rows and of blocks leave consumers fewer.
constexpr int kWarpgroupFeederRegisters = 24;
// With 128 keys a tile: ALiBi and a score function, each; a custom mask; a
// softcap and a window, each.
constexpr int kWarpgroupBiasRegisters = 24;
constexpr int kWarpgroupMaskRegisters = 20;
constexpr int kWarpgroupRangeRegisters = 8;
// Likewise of kernels/extend_fp8.cuh.
constexpr int kFp8ConsumerRegisters = 216;
constexpr int kFp8OtherRegisters = 40;
// 16 elements as f32, their codes, addresses and scales.
constexpr int kStoreRegisters = 64;
constexpr int kMergeOtherRegisters = 40;

constexpr int RoundUp(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

// Shared bytes of the codes of one key: rows of whole 64-byte lines are dense.
constexpr int RowPitch(int bytes) {
  return bytes % 64 == 0 ? bytes : 16 * ((bytes + 15) / 16 | 1);
}

// Of its scales.
int SideScaleBytes(const KvFormat& format, int head_dim) {
  return format.RowScaleBytes() + RoundUp(format.BlockScaleBytes(head_dim), 4);
}

// 16-bit operands of a query value: two where one would round it.
int QueryParts(const KernelSpec& spec) {
  const bool bf16_operands = spec.k_format->element == Element::kBf16;
  const bool scaled_by_channel =
      spec.k_format->given_scale == GivenScale::kChannel;
  return scaled_by_channel || spec.type == DType::kF32 ||
                 (spec.type == DType::kF16 && bf16_operands)
             ? 2
             : 1;
}

int QueryBytes(const KernelSpec& spec, const Tile& tile) {
  return QueryParts(spec) * tile.block_m * spec.head_dim * 2;
}

// A decode query this wide stays in shared memory, not in registers.
bool DecodeQueryInShared(const KernelSpec& spec) {
  return spec.head_dim > kDecodeQueryRegistersHeadDim || QueryParts(spec) > 1;
}

// Features of the score and of who sees what that need registers of their own.
int CountFeatures(const KernelSpec& spec) {
  return spec.alibi + !spec.score.empty() + (spec.mask == MaskKind::kCustom) +
         (spec.sparse_block > 0);
}

int KeyScaleBytes(const KernelSpec& spec) {
  return SideScaleBytes(*spec.k_format, spec.head_dim) +
         SideScaleBytes(*spec.v_format, spec.v_head_dim);
}

// Of K and V of `keys` keys, each side rounded up to a multiple of `unit`.
int KeyCodesBytes(const KernelSpec& spec, int keys, int unit) {
  return RoundUp(keys * RowPitch(spec.k_format->CodeBytes(spec.head_dim)),
                 unit) +
         RoundUp(keys * RowPitch(spec.v_format->CodeBytes(spec.v_head_dim)),
                 unit);
}

// Row terms of a slot of a tile's keys: scales, four runs of a fourth of the
// keys and a pad; of V then a factor for each 16 keys, in images three.
int KeyTermsBytes(const KernelSpec& spec, const Tile& tile) {
  return spec.k_format->RowScaleBytes() * (tile.block_n + 16);
}
int ValueTermsBytes(const KernelSpec& spec, const Tile& tile) {
  const int planes = spec.v_format->RowScaleBytes() * (tile.block_n + 16);
  const int factors = RoundUp(tile.block_n / 16 * 4, 16);
  return planes == 0 ? 0 : planes + (tile.images ? 3 : 1) * factors;
}

// Slots of images, 128 bytes for 64 channels of a key, and of row terms, alike
// for K and V; q; barriers. Raw places as asynchronous copies fill them; where
// images come from a workspace two items of work instead, each with its q, a
// factor a row, and barriers.
int WarpgroupBytes(const KernelSpec& spec, const Tile& tile) {
  const int channels = std::max(spec.head_dim, spec.v_head_dim);
  const int image = channels / 64 * tile.block_n * 128;
  const int key_terms = KeyTermsBytes(spec, tile);
  const int value_terms = ValueTermsBytes(spec, tile);
  const int terms =
      tile.images ? key_terms + value_terms : std::max(key_terms, value_terms);
  const int raw = tile.block_n *
                  std::max(RowPitch(spec.k_format->CodeBytes(spec.head_dim)) +
                               SideScaleBytes(*spec.k_format, spec.head_dim),
                           RowPitch(spec.v_format->CodeBytes(spec.v_head_dim)) +
                               SideScaleBytes(*spec.v_format, spec.v_head_dim));
  constexpr int kRawPlaces = 3;
  const int item = QueryBytes(spec, tile) + 3 * 8 + 48 + 4 * tile.block_m;
  return tile.stages * (image + terms + 2 * 8) +
         (tile.images ? 2 * item : QueryBytes(spec, tile) + kRawPlaces * raw);
}

// compute=fp8: a slot of K's codes and, rows of it being channels, one of V's;
// q in one byte; raw codes of V; places of row terms, four lanes of 32 keys and
// 4 more f32 each: K's, and two of V's, whose scales are kept raw, too;
// barriers.
int Fp8Bytes(const KernelSpec& spec, const Tile& tile) {
  constexpr int kValueSlots = 2;
  constexpr int kLine = 128;
  const int lane_terms = (tile.block_n / 4 + 4) * 4;
  const int k_terms = spec.k_format->row_scale != RowScale::kNone;
  const int v_terms = spec.v_format->row_scale != RowScale::kNone;
  const int k_slot = tile.block_n * kLine + k_terms * 4 * lane_terms;
  const int v_slot = spec.v_head_dim * kLine + v_terms * 2 * 4 * lane_terms;
  const int raw = tile.block_n * (spec.v_head_dim + v_terms * 4);
  return tile.block_m * kLine + tile.stages * (k_slot + raw) +
         kValueSlots * v_slot + 8 * 2 * (tile.stages + kValueSlots);
}

// compute=fp8: output, scores, a tile's product with half the columns of V,
// and weights in a byte.
int Fp8Registers(const KernelSpec& spec, const Tile& tile) {
  return spec.v_head_dim / 2 + tile.block_n / 2 + spec.v_head_dim / 4 +
         tile.block_n / 8 + kFp8OtherRegisters;
}

// Of a consumer of 64 rows a warpgroup: output, scores, their weights, what
// bf16 weights lose, scales, and what features take for each key.
int WarpgroupRegisters(const KernelSpec& spec, const Tile& tile) {
  const bool two_part_weights = spec.v_format->element == Element::kBf16;
  const bool mask = spec.mask == MaskKind::kCustom;
  const auto by_row = [](const KvFormat& format) {
    return format.row_scale != RowScale::kNone;
  };
  const auto by_both = [&](const KvFormat& format) {
    return by_row(format) && format.block > 0;
  };
  int scales = 0;
  if (!tile.images && !mask &&
      (by_both(*spec.k_format) || by_both(*spec.v_format))) {
    scales = kWarpgroupFeederRegisters;
  } else if (by_row(*spec.k_format) || by_row(*spec.v_format)) {
    scales = kWarpgroupRowScaleRegisters;
  }
  const int features =
      (spec.alibi + !spec.score.empty()) * kWarpgroupBiasRegisters +
      mask * kWarpgroupMaskRegisters +
      ((spec.softcap > 0) + (spec.window > 0)) * kWarpgroupRangeRegisters;
  return spec.v_head_dim / 2 + tile.block_n / 2 +
         tile.block_n / 4 * (two_part_weights ? 2 : 1) +
         kWarpgroupOtherRegisters + scales + features * tile.block_n / 128;
}

// What formats take besides: block scales that are f32 factors take partial
// dots of K, and references of V's blocks for each of a thread's rows; e5m2,
// whose decode is one byte permute, has ptxas hold more operands at once.
int ExtendFormatRegisters(const KernelSpec& spec, int warp_rows, int columns) {
  int registers = 0;
  if (spec.k_format->element == Element::kE5m2 ||
      spec.v_format->element == Element::kE5m2) {
    registers += kExtendE5m2Registers;
  }
  if (spec.k_format->block_scale == BlockScale::kUe8m0) {
    registers += kExtendPartialDotRegisters;
  }
  if (spec.v_format->block_scale == BlockScale::kUe8m0) {
    registers += warp_rows / 8 * (columns / spec.v_format->block);
  }
  return registers;
}

}  // namespace

int SharedBytes(const KernelSpec& spec, const Tile& tile) {
  switch (spec.kernel) {
    case KernelKind::kStore:
    case KernelKind::kGather:
    case KernelKind::kMerge:
      return 0;
    case KernelKind::kDecode: {
      const int query = DecodeQueryInShared(spec) ? QueryBytes(spec, tile) : 0;
      const int keys = tile.warps * kDecodeKeysPerStep;
      const int pipelines =
          tile.stages * (KeyCodesBytes(spec, keys, kDecodeCodesAlignment) +
                         keys * KeyScaleBytes(spec));
      const int exchange = tile.warps * tile.block_m * kDecodeExchangeRowBytes;
      // Two barriers a stage, and 16 bytes on each warp's piece of it.
      const int notes = tile.stages * (tile.warps * 16 + 16);
      return query + pipelines + exchange + notes + kDecodeShareBytes;
    }
    case KernelKind::kExtend:
      if (IsFp8(spec)) return Fp8Bytes(spec, tile);
      if (tile.warpgroups) return WarpgroupBytes(spec, tile);
      return QueryBytes(spec, tile) +
             tile.stages * (KeyCodesBytes(spec, tile.block_n, 1) +
                            tile.block_n * KeyScaleBytes(spec));
  }
  return 0;
}

int RegistersPerThread(const KernelSpec& spec, const Tile& tile) {
  switch (spec.kernel) {
    case KernelKind::kStore:
    case KernelKind::kGather:
      return kStoreRegisters;
    case KernelKind::kMerge:
      return kMergeOtherRegisters + spec.v_head_dim / kWarpLanes;
    case KernelKind::kDecode: {
      // Two for each 16 x 8 operand of the query.
      const int query =
          DecodeQueryInShared(spec) ? 0 : tile.block_m / 8 * spec.head_dim / 8;
      const int accumulators = tile.block_m * spec.v_head_dim / kWarpLanes;
      return query + accumulators + kDecodeOtherRegisters +
             tile.block_m / 8 * kDecodeRowTileRegisters +
             tile.block_m / 8 * kDecodeFeatureRegisters * CountFeatures(spec);
    }
    case KernelKind::kExtend: {
      if (IsFp8(spec)) return Fp8Registers(spec, tile);
      if (tile.warpgroups) return WarpgroupRegisters(spec, tile);
      const int warp_rows = ExtendWarpRows(spec, tile);
      const int columns = spec.v_head_dim / ExtendDimSplit(spec.v_head_dim);
      const int accumulators = warp_rows * columns / kWarpLanes;
      const int scores = warp_rows * tile.block_n / kWarpLanes;
      // A further query part is one A operand for each 16 rows.
      const int query_parts = (QueryParts(spec) - 1) * warp_rows / 4;
      return accumulators + scores + query_parts + kExtendOtherRegisters +
             warp_rows / 32 * kExtendFeatureRegisters * CountFeatures(spec) +
             ExtendFormatRegisters(spec, warp_rows, columns);
    }
  }
  return 0;
}

int BlockThreads(const KernelSpec& spec, const Tile& tile) {
  int warps = tile.warps;
  if (spec.kernel == KernelKind::kDecode) {
    warps += 2 * DecodeSideProducers(tile);
  }
  // One that fills slots.
  if (tile.warpgroups) warps += 4;
  return warps * kWarpLanes;
}

int RegisterLimit(const KernelSpec& spec, const Tile& tile,
                  const GpuTarget& target) {
  if (IsFp8(spec)) return kFp8ConsumerRegisters;
  if (tile.images) return kImagesConsumerRegisters;
  if (tile.warpgroups) {
    return spec.mask == MaskKind::kCustom ? kWarpgroupMaskConsumerRegisters
                                          : kWarpgroupConsumerRegisters;
  }
  const int share = target.registers_per_sm / BlockThreads(spec, tile);
  return std::min(kMaxRegisters, share / kRegisterUnit * kRegisterUnit);
}

int DecodeSideProducers(const Tile& tile) { return tile.warps >= 4 ? 2 : 1; }

int DecodeHeadsPerBlock(const KernelSpec& spec, const Tile& tile) {
  return DecodeQueryInShared(spec) ? 1 : tile.warps & -tile.warps;
}

int64_t ImageSlotBytes(const KernelSpec& spec, const Tile& tile) {
  return RoundUp(tile.block_n * (spec.head_dim + spec.v_head_dim) * 2 +
                     KeyTermsBytes(spec, tile) + ValueTermsBytes(spec, tile),
                 128);
}

int64_t PassedStateBytes(const KernelSpec& spec, const Tile& tile) {
  constexpr int kUnitBytes = 16;
  return int64_t{kUnitBytes} * tile.warps * kWarpLanes *
         (spec.v_head_dim / 8 + 2);
}

int ExtendDimSplit(int v_head_dim) {
  return (v_head_dim + kOutputColumnsPerWarp - 1) / kOutputColumnsPerWarp;
}

int ExtendWarpRows(const KernelSpec& spec, const Tile& tile) {
  const int dim_split = ExtendDimSplit(spec.v_head_dim);
  if (tile.warps % dim_split != 0) return 0;
  const int row_warps = tile.warps / dim_split;
  return tile.block_m % row_warps == 0 ? tile.block_m / row_warps : 0;
}

bool TakesWarpgroups(const KernelSpec& spec) {
  const auto takes = [](int head_dim) {
    return head_dim == 64 || head_dim == 128 || head_dim == 192;
  };
  if (IsFp8(spec)) return true;  // else ValidateSpec refuses it
  return takes(spec.head_dim) && takes(spec.v_head_dim) &&
         spec.k_format->block_scale != BlockScale::kUe8m0 &&
         spec.v_format->block_scale != BlockScale::kUe8m0 &&
         spec.k_format->row_scale != RowScale::kF32AndMinimum &&
         spec.v_format->row_scale != RowScale::kF32AndMinimum &&
         spec.sparse_block == 0;
}

bool TakesImages(const KernelSpec& spec) {
  return !IsFp8(spec) && TakesWarpgroups(spec) &&
         spec.mask != MaskKind::kCustom &&
         spec.k_format->given_scale != GivenScale::kChannel &&
         spec.v_format->given_scale != GivenScale::kChannel;
}

int StoreRowsPerWarp(const KernelSpec& spec) {
  const int pieces = std::max(spec.head_dim, spec.v_head_dim) / 16;
  int lanes = 1;
  while (lanes < pieces) lanes *= 2;
  return kWarpLanes / lanes;
}

}  // namespace kvforge

#include "kernels/decode.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/tile/memory_model.h"
#include "kernels/argument_checks.h"
#include "kernels/attention.h"
#include "kernels/key_maps.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int64_t kWorkspaceAlignment = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of a kernel that one multiprocessor holds at once.
int64_t BlocksPerMultiprocessor(const GpuTarget& gpu,
                                const LaunchFacts& facts) {
  const int64_t shared = facts.dynamic_shared_bytes +
                         facts.static_shared_bytes + gpu.shared_bytes_reserved;
  const int64_t warps = std::max(1, facts.block_threads / 32);
  int64_t blocks = gpu.warps_per_sm / warps;
  if (shared > 0) blocks = std::min(blocks, gpu.shared_bytes_per_sm / shared);
  if (facts.registers > 0) {
    // Registers are given out to warps in units of 8 a thread.
    const int64_t block_registers =
        CeilDiv(facts.registers, 8) * 8 * 32 * warps;
    blocks = std::min(blocks, gpu.registers_per_sm / block_registers);
  }
  return std::max<int64_t>(1, blocks);
}

int64_t CounterBytes(const DecodeGrid& grid) {
  return CeilDiv(int64_t{4} * grid.blocks, kWorkspaceAlignment) *
         kWorkspaceAlignment;
}

// Whether this kernel's tile won together with a grid that serves `sizes`.
bool TakeTunedGrid(const Engine& engine, const PreparedKernel& decode,
                   const DecodeSizes& sizes, DecodeGrid& grid) {
  if (sizes.batch < 1 || sizes.num_kv_heads < 1 || sizes.q_len < 1 ||
      sizes.kv_len < 1) {
    return false;
  }
  const TuneShape shape = {sizes.batch, sizes.num_kv_heads, sizes.q_len,
                           sizes.kv_len};
  const std::optional<CandidateParts> tuned =
      engine.Tuned(decode.spec(), &shape);
  if (!tuned || tuned->blocks == 0 || tuned->tile != decode.tile().Text() ||
      tuned->blocks > kMaxDecodeBlocks ||
      tuned->heads_per_block >
          DecodeHeadsPerBlock(decode.spec(), decode.tile()) ||
      sizes.num_kv_heads % tuned->heads_per_block != 0) {
    return false;
  }
  grid.blocks = tuned->blocks;
  grid.heads_per_block = tuned->heads_per_block;
  return true;
}

absl::Status CheckGridShape(const PreparedKernel& decode,
                            const DecodeParams& params) {
  const DecodeGrid& grid = params.grid;
  if (grid.blocks < 1 || grid.blocks > kMaxDecodeBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode: grid.blocks = ", grid.blocks,
                     " is out of range; 1 to ", kMaxDecodeBlocks,
                     " are supported; take the grid that the library chooses"));
  }
  const int most = DecodeHeadsPerBlock(decode.spec(), decode.tile());
  if (grid.heads_per_block < 1 || grid.heads_per_block > most ||
      !std::has_single_bit(static_cast<unsigned>(grid.heads_per_block)) ||
      params.args.num_kv_heads % grid.heads_per_block != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "decode: grid.heads_per_block = ", grid.heads_per_block,
        "; a power of two that divides num_kv_heads = ",
        params.args.num_kv_heads, " is supported, up to ", most, " for ",
        decode.spec().Text(), "; take the grid that the library chooses"));
  }
  if (grid.blocks == 1) return absl::OkStatus();
  RETURN_IF_ERROR(CheckPointer("decode", "workspace", params.workspace,
                               kWorkspaceAlignment,
                               "counters and scratch of parts"));
  const int64_t needed = DecodeWorkspaceBytes(decode, grid);
  if (params.workspace_bytes < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode: the workspace has ", params.workspace_bytes,
                     " bytes; ", grid.blocks, " blocks of ",
                     grid.heads_per_block, " kv heads need ", needed,
                     "; allocate as many bytes as the library computes for "
                     "this grid, or use fewer blocks"));
  }
  return absl::OkStatus();
}

}  // namespace

DecodeGrid ChooseDecodeGrid(const Engine& engine, const PreparedKernel& decode,
                            const DecodeSizes& sizes) {
  const KernelSpec& spec = decode.spec();
  const Tile& tile = decode.tile();
  DecodeGrid grid;
  if (TakeTunedGrid(engine, decode, sizes, grid)) return grid;
  grid.blocks = static_cast<int>(std::min<int64_t>(
      kMaxDecodeBlocks,
      engine.multiprocessors() *
          BlocksPerMultiprocessor(engine.gpu(), decode.facts())));
  // As many heads as leave a unit of work for each block, or nearly: units are
  // then not cut. Two at least where that many units of one head do: a block of
  // one head copies more groups a step, each for itself.
  const int64_t row_tiles =
      CeilDiv(int64_t{spec.q_max} * spec.group, tile.block_m);
  for (int heads = DecodeHeadsPerBlock(spec, tile); heads > 1; heads /= 2) {
    if (sizes.num_kv_heads % heads != 0) continue;
    const int least_heads = heads == 2 ? 1 : heads;
    const int64_t units =
        int64_t{sizes.batch} * row_tiles * (sizes.num_kv_heads / least_heads);
    if (10 * units < 9 * int64_t{grid.blocks}) continue;
    grid.heads_per_block = heads;
    break;
  }
  return grid;
}

int64_t DecodeWorkspaceBytes(const PreparedKernel& decode,
                             const DecodeGrid& grid) {
  if (grid.blocks <= 1) return 0;
  // A slot for the first and one for the last unit of each block.
  const int64_t slot = int64_t{4} * grid.heads_per_block *
                       decode.tile().block_m * (decode.spec().v_head_dim + 1);
  return CounterBytes(grid) + 2 * grid.blocks * slot;
}

absl::Status RunDecode(const PreparedKernel& decode, const DecodeParams& params,
                       void* stream) {
  const KernelSpec& spec = decode.spec();
  if (spec.kernel != KernelKind::kDecode) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode: the kernel is ", spec.Text(),
                     "; only decode kernels decode; prepare a decode spec"));
  }
  DecodeArgs args = {params.args};
  RETURN_IF_ERROR(CheckAttentionCounts(spec, params.num_q_heads, args));
  if (args.batch == 0 || args.total_q == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckGridShape(decode, params));
  args.heads_per_block_log2 =
      std::countr_zero(static_cast<unsigned>(params.grid.heads_per_block));
  const ViewKey key = {args.k, args.v, args.num_kv_heads,
                       args.heads_per_block_log2};
  const bool known =
      decode.known_views().Find(key, [&](const ViewFacts& facts) {
        SetAccessWidths(facts, args);
        SetKeyMaps(facts, args);
      });
  RETURN_IF_ERROR(CheckAttention(spec, params.num_q_heads, known, args));
  args.arrivals = nullptr;
  args.partials = nullptr;
  if (params.grid.blocks > 1) {
    char* workspace = static_cast<char*>(params.workspace);
    args.arrivals = reinterpret_cast<unsigned*>(workspace);
    args.partials =
        reinterpret_cast<float*>(workspace + CounterBytes(params.grid));
  }
  if (!known) {
    ViewFacts facts = AccessWidths(args);
    RETURN_IF_ERROR(MakeKeyMaps(decode, args, facts));
    SetKeyMaps(facts, args);
    decode.known_views().Keep(key, facts);
  }
  return decode.Launch(params.grid.blocks, &args, sizeof(args), stream);
}

}  // namespace kvforge

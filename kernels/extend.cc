#include "kernels/extend.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/tile/memory_model.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/argument_checks.h"
#include "kernels/attention.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

// Ahead of the rest: the counter of work items. States and images are 128-byte
// aligned.
constexpr int64_t kCounterBytes = 128;

// Rows of a sequence from which on images pay: four blocks read each of them.
constexpr int64_t kLeastRowsOnImages = 512;
// Passes that hand their rows' states on cost more than they save.
constexpr int64_t kMostPassesThatPay = 16;

// Extend of a spec in a tile of images.
struct OnImages {
  const KernelSpec& spec;
  const Tile& tile;

  // Of one tile of keys for all kv heads.
  int64_t TileBytes(int num_kv_heads) const {
    return num_kv_heads * ImageSlotBytes(spec, tile);
  }
  // The last tile of each sequence is not full.
  int64_t KeyTiles(int64_t kv_tokens, int batch) const {
    return std::max<int64_t>(kv_tokens / tile.block_n + batch, 1);
  }
  int64_t StateBytes(int64_t row_blocks) const {
    return row_blocks * PassedStateBytes(spec, tile);
  }
};

OnImages ImagesOf(const PreparedKernel& kernel) {
  return {kernel.spec(), kernel.tile()};
}

// Blocks of rows of all sequences and kv heads. Each sequence may leave one
// partly filled; the kernel finds its own in q_indptr, so the grid needs no
// length.
int64_t RowBlocks(const KernelSpec& spec, const Tile& tile, int64_t total_q,
                  int batch, int num_kv_heads) {
  const int64_t rows = total_q * spec.group;
  return num_kv_heads * ((rows + tile.block_m - 1) / tile.block_m + batch);
}

// What a workspace holds, and how often.
struct Passes {
  int64_t tiles = 0;  // of a pass
  int64_t count = 1;
  int64_t state_bytes = 0;
};

absl::StatusOr<Passes> PlanPasses(const PreparedKernel& kernel,
                                  const ExtendParams& params,
                                  int64_t row_blocks) {
  const OnImages images = ImagesOf(kernel);
  const int64_t needed =
      params.kv_tokens == 0
          ? 0
          : images.KeyTiles(params.kv_tokens, params.args.batch);
  if (params.kv_tokens < 0 || needed > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "extend: kv_tokens = ", params.kv_tokens, "; 0 to ",
        int64_t{INT32_MAX} * kernel.tile().block_n - params.args.batch,
        " are supported; pass what all sequences together have at most"));
  }
  const int64_t tile_bytes = images.TileBytes(params.args.num_kv_heads);
  const int64_t at_once = std::max<int64_t>(needed, 1) * tile_bytes;
  const int64_t state_bytes = images.StateBytes(row_blocks);
  const int64_t least =
      kCounterBytes + std::min(at_once, state_bytes + tile_bytes);
  const auto address = reinterpret_cast<uintptr_t>(params.workspace);
  if (address == 0 || address % kCounterBytes != 0 ||
      params.workspace_bytes < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "extend: the workspace of ", kernel.spec().Text(), " in tile ",
        kernel.tile().Text(), " is ",
        address == 0 ? std::string("null")
                     : absl::StrCat(params.workspace_bytes, " bytes, ",
                                    address % kCounterBytes,
                                    " past a multiple of ", kCounterBytes),
        "; supported are ", least,
        " bytes or more at such a multiple; allocate "
        "the bytes that the size query gives, or prepare a tile without "
        "images"));
  }
  const int64_t bytes = params.workspace_bytes - kCounterBytes;
  if (bytes >= at_once) {
    return Passes{std::min<int64_t>(bytes / tile_bytes, INT32_MAX)};
  }
  const int64_t tiles = (bytes - state_bytes) / tile_bytes;
  return Passes{tiles, (needed + tiles - 1) / tiles, state_bytes};
}

// Two launches a pass: images, then attention to them.
absl::Status RunOnImages(const PreparedKernel& kernel,
                         const ExtendParams& params,
                         const AttentionArgs& checked, int64_t row_blocks,
                         void* stream) {
  ASSIGN_OR_RETURN(const Passes passes, PlanPasses(kernel, params, row_blocks));
  ExtendArgs args = {checked};
  char* workspace = static_cast<char*>(params.workspace);
  args.next_item = reinterpret_cast<unsigned*>(workspace);
  if (passes.count > 1) {
    args.states = reinterpret_cast<float*>(workspace + kCounterBytes);
  }
  args.images = reinterpret_cast<unsigned char*>(workspace + kCounterBytes +
                                                 passes.state_bytes);
  args.image_tiles = static_cast<int>(passes.tiles);
  for (int64_t pass = 0; pass < passes.count; ++pass) {
    args.first_tile = static_cast<int>(pass * passes.tiles);
    args.last_pass = pass + 1 == passes.count;
    args.makes_images = 1;
    args.blocks = kernel.multiprocessors();
    RETURN_IF_ERROR(kernel.Launch(args.blocks, &args, sizeof(args), stream));
    args.makes_images = 0;
    args.blocks = static_cast<int>(
        std::min<int64_t>(row_blocks, kernel.multiprocessors()));
    RETURN_IF_ERROR(kernel.Launch(args.blocks, &args, sizeof(args), stream));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ExtendWorkspaceBytes(const PreparedKernel& extend,
                             const ExtendSizes& sizes) {
  if (!extend.tile().images) return 0;
  const OnImages images = ImagesOf(extend);
  const int64_t tile_bytes = images.TileBytes(sizes.num_kv_heads);
  int64_t bytes = images.KeyTiles(sizes.kv_tokens, sizes.batch) * tile_bytes;
  if (sizes.kv_tokens_per_pass > 0) {
    const int64_t block_n = extend.tile().block_n;
    const int64_t tiles = (sizes.kv_tokens_per_pass + block_n - 1) / block_n;
    const int64_t passed =
        images.StateBytes(RowBlocks(extend.spec(), extend.tile(), sizes.total_q,
                                    sizes.batch, sizes.num_kv_heads));
    bytes = std::min(bytes, tiles * tile_bytes + passed);
  }
  return kCounterBytes + bytes;
}

ExtendPlan ChooseExtend(const Engine& engine, const KernelSpec& spec,
                        const ExtendSizes& sizes, int64_t granted_bytes) {
  const int64_t rows = int64_t{sizes.total_q} * spec.group;
  if (rows < kLeastRowsOnImages * std::max(sizes.batch, 1)) return {};
  const absl::StatusOr<Tile> tile = ImagesTile(engine, spec);
  if (!tile.ok()) return {};
  const OnImages images = {spec, *tile};
  const int64_t tile_bytes = images.TileBytes(sizes.num_kv_heads);
  const int64_t needed = images.KeyTiles(sizes.kv_tokens, sizes.batch);
  const int64_t granted = std::max<int64_t>(granted_bytes, 0) - kCounterBytes;
  if (needed * tile_bytes <= granted) {
    return {*tile, kCounterBytes + needed * tile_bytes};
  }
  const int64_t passed = images.StateBytes(
      RowBlocks(spec, *tile, sizes.total_q, sizes.batch, sizes.num_kv_heads));
  const int64_t tiles = granted > passed ? (granted - passed) / tile_bytes : 0;
  if (needed > kMostPassesThatPay * tiles) return {};
  return {*tile, kCounterBytes + passed + tiles * tile_bytes};
}

absl::StatusOr<Tile> ImagesTile(const Engine& engine, const KernelSpec& spec) {
  ASSIGN_OR_RETURN(const TileCandidate found,
                   SelectWarpgroupTile(spec, engine.gpu(), /*images=*/true));
  return found.tile;
}

absl::Status RunExtend(const PreparedKernel& kernel, const ExtendParams& params,
                       void* stream) {
  const KernelSpec& spec = kernel.spec();
  if (spec.kernel != KernelKind::kExtend) {
    return absl::InvalidArgumentError(
        absl::StrCat("extend: the kernel is ", spec.Text(),
                     "; only extend kernels extend; prepare an extend "
                     "spec"));
  }
  AttentionArgs args = params.args;
  RETURN_IF_ERROR(CheckAttentionCounts(spec, params.num_q_heads, args));
  if (args.batch == 0 || args.total_q == 0) return absl::OkStatus();
  const ViewKey key = {args.k, args.v, args.num_kv_heads};
  const bool known = kernel.known_views().Find(
      key, [&](const ViewFacts& facts) { SetAccessWidths(facts, args); });
  RETURN_IF_ERROR(CheckAttention(spec, params.num_q_heads, known, args));
  if (!known) kernel.known_views().Keep(key, AccessWidths(args));
  const int64_t blocks = RowBlocks(spec, kernel.tile(), args.total_q,
                                   args.batch, args.num_kv_heads);
  RETURN_IF_ERROR(CheckGrid("extend", blocks));
  if (kernel.tile().images) {
    return RunOnImages(kernel, params, args, blocks, stream);
  }
  return kernel.Launch(blocks, &args, sizeof(args), stream);
}

}  // namespace kvforge

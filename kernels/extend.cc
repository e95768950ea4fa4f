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

// Ahead of the images: the counter of work items. Images are 128-byte aligned.
constexpr int64_t kImagesOffset = 128;

// Of one tile of keys for all kv heads.
int64_t TileBytes(const PreparedKernel& kernel, int num_kv_heads) {
  return num_kv_heads * ImageSlotBytes(kernel.spec(), kernel.tile());
}

absl::Status CheckWorkspace(const PreparedKernel& kernel,
                            const ExtendParams& params) {
  const int64_t least =
      kImagesOffset + TileBytes(kernel, params.args.num_kv_heads);
  const auto address = reinterpret_cast<uintptr_t>(params.workspace);
  if (address != 0 && address % kImagesOffset == 0 &&
      params.workspace_bytes >= least) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "extend: the workspace of ", kernel.spec().Text(), " in tile ",
      kernel.tile().Text(), " is ",
      address == 0 ? std::string("null")
                   : absl::StrCat(params.workspace_bytes, " bytes, ",
                                  address % kImagesOffset,
                                  " past a multiple of ", kImagesOffset),
      "; supported are ", least,
      " bytes or more at such a multiple; allocate "
      "the bytes that the size query gives, or prepare a tile without images"));
}

// Two launches: images, then attention to them.
absl::Status RunOnImages(const PreparedKernel& kernel,
                         const ExtendParams& params,
                         const AttentionArgs& checked, int64_t items,
                         void* stream) {
  RETURN_IF_ERROR(CheckWorkspace(kernel, params));
  ExtendArgs args = {checked};
  char* workspace = static_cast<char*>(params.workspace);
  args.next_item = reinterpret_cast<unsigned*>(workspace);
  args.images = reinterpret_cast<unsigned char*>(workspace + kImagesOffset);
  args.image_tiles = static_cast<int>(
      std::min<int64_t>((params.workspace_bytes - kImagesOffset) /
                            TileBytes(kernel, checked.num_kv_heads),
                        INT32_MAX));
  args.makes_images = 1;
  args.blocks = kernel.multiprocessors();
  RETURN_IF_ERROR(kernel.Launch(args.blocks, &args, sizeof(args), stream));
  args.makes_images = 0;
  args.blocks =
      static_cast<int>(std::min<int64_t>(items, kernel.multiprocessors()));
  return kernel.Launch(args.blocks, &args, sizeof(args), stream);
}

}  // namespace

int64_t ExtendWorkspaceBytes(const PreparedKernel& extend,
                             const ExtendSizes& sizes) {
  if (!extend.tile().images) return 0;
  // The last tile of each sequence is not full.
  const int64_t tiles = sizes.kv_tokens / extend.tile().block_n + sizes.batch;
  return kImagesOffset +
         std::max<int64_t>(tiles, 1) * TileBytes(extend, sizes.num_kv_heads);
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
  RETURN_IF_ERROR(
      CheckAttention(spec, params.num_q_heads, /*needs_out=*/true, args));
  // Each sequence may leave one tile partly filled; the kernel finds its tile
  // in q_indptr, so the grid needs no length.
  const int64_t block_m = kernel.tile().block_m;
  const int64_t rows = int64_t{args.total_q} * spec.group;
  const int64_t tiles = (rows + block_m - 1) / block_m + args.batch;
  const int64_t blocks = args.num_kv_heads * tiles;
  RETURN_IF_ERROR(CheckGrid("extend", blocks));
  if (kernel.tile().images) {
    return RunOnImages(kernel, params, args, blocks, stream);
  }
  return kernel.Launch(blocks, &args, sizeof(args), stream);
}

}  // namespace kvforge

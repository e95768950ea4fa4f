#include "compiler/diagnostics.h"
#include "compiler/passes/passes.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

#define GEN_PASS_DEF_KVCHOOSETILE
#include "compiler/passes/Passes.h.inc"

namespace {

// `wanted` if it is a tile of this kernel, or the selector's if it is empty.
absl::StatusOr<Tile> TileFor(const KernelSpec& spec, const GpuTarget& target,
                             absl::string_view wanted) {
  if (wanted.empty()) {
    ASSIGN_OR_RETURN(const TileCandidate chosen, SelectTile(spec, target));
    return chosen.tile;
  }
  ASSIGN_OR_RETURN(const Tile given, ParseTile(wanted));
  RETURN_IF_ERROR(CheckTile(spec, given, target));
  return given;
}

class ChooseTile : public impl::KvChooseTileBase<ChooseTile> {
 public:
  using KvChooseTileBase::KvChooseTileBase;

  void runOnOperation() override {
    if (const absl::Status status = Choose(); !status.ok()) {
      EmitStatus(getOperation(), status);
      signalPassFailure();
    }
  }

 private:
  absl::Status Choose() {
    kv::KernelOp kernel = getOperation();
    ASSIGN_OR_RETURN(const KernelSpec spec, SpecOf(kernel));
    ASSIGN_OR_RETURN(const GpuTarget* target, FindTarget(gpu));
    std::string wanted = tile;
    if (wanted.empty()) wanted = kernel.getTile().value_or("").str();
    ASSIGN_OR_RETURN(const Tile chosen, TileFor(spec, *target, wanted));
    kernel.setTile(chosen.Text());
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace kvforge

#include "compiler/diagnostics.h"
#include "compiler/passes/codec_table.h"
#include "compiler/passes/passes.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile_selector.h"

namespace kvforge {

#define GEN_PASS_DEF_KVVERIFYTARGET
#include "compiler/passes/Passes.h.inc"

namespace {

class VerifyTarget : public impl::KvVerifyTargetBase<VerifyTarget> {
 public:
  using KvVerifyTargetBase::KvVerifyTargetBase;

  void runOnOperation() override {
    kv::KernelOp kernel = getOperation();
    const absl::StatusOr<KernelSpec> spec = SpecOf(kernel);
    if (!spec.ok()) Refuse(kernel, spec.status());
    const absl::StatusOr<const GpuTarget*> target = FindTarget(gpu);
    if (!target.ok()) return Refuse(kernel, target.status());

    if (spec.ok()) {
      const absl::Status computes = CheckCompute(*spec, **target);
      if (!computes.ok()) Refuse(kernel, computes);
    }

    kernel.walk([&](mlir::Operation* op) {
      if (auto load = mlir::dyn_cast<kv::LoadCodesOp>(op)) {
        const kv::ElementKind element = load.getType().getElement();
        if (!ChooseDecode(element, std::nullopt, **target)) {
          Refuse(op, NoFunction("decodes", View(kv::ElementText(element)),
                                **target, DecodableElements()));
        }
      } else if (auto quantize = mlir::dyn_cast<kv::QuantizeOp>(op)) {
        const kv::ElementKind element =
            quantize.getCodes().getType().getElement();
        if (kv::ElementBits(element) != 16 &&
            !ChooseEncode(element, **target)) {
          Refuse(op, NoFunction("encodes", View(kv::ElementText(element)),
                                **target, EncodableElements()));
        }
      }
    });
  }

 private:
  void Refuse(mlir::Operation* op, const absl::Status& status) {
    EmitStatus(op, status);
    signalPassFailure();
  }
};

}  // namespace
}  // namespace kvforge

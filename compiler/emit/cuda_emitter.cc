#include "compiler/emit/cuda_emitter.h"

#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/kv_shapes.h"
#include "compiler/emit/attention_graph.h"
#include "compiler/emit/map_printer.h"
#include "compiler/emit/row_decoder.h"
#include "compiler/emit/row_quantizers.h"
#include "compiler/emit/spec_block.h"
#include "compiler/passes/codec_table.h"
#include "compiler/passes/passes.h"
#include "llvm/Support/raw_ostream.h"
#include "runtime/base/status_macros.h"

namespace kvforge {

#define GEN_PASS_DEF_KVEMITCUDA
#include "compiler/passes/Passes.h.inc"

namespace {

// What differs between the kernels' texts.
struct Parts {
  std::set<std::string> format_headers;
  bool operands = false;  // needs formats/operand.cuh
  absl::string_view args_header;
  std::string block;      // constants and aliases
  std::string functions;  // generated structs and functions
};

absl::Status AddHeader(std::optional<llvm::StringRef> function, Parts& parts) {
  if (!function) return absl::OkStatus();
  const CodecFunction* row = FindCodecFunction(*function);
  if (!row) {
    return absl::InvalidArgumentError(absl::StrCat(
        "emit: device function '", View(*function),
        "' is not in the codec table; decoders: ", DecodableElements(),
        ", encoders: ", EncodableElements(), "; let kv-lower-codec choose"));
  }
  parts.format_headers.insert(row->header.str());
  return absl::OkStatus();
}

bool IsProduct(const AttentionGraph::Ops& chain) {
  return llvm::all_of(
      chain, [](mlir::Operation* op) { return mlir::isa<kv::ScaleOp>(op); });
}

// The kernel's template.
std::string TemplateOf(const KernelSpec& spec, const Tile& tile) {
  const absl::string_view variant = IsFp8(spec)       ? "_fp8"
                                    : tile.images     ? "_images"
                                    : tile.warpgroups ? "_warpgroups"
                                                      : "";
  return absl::StrCat("kernels/", KernelName(spec.kernel), variant, ".cuh");
}

absl::StatusOr<Parts> AttentionParts(kv::KernelOp kernel,
                                     const KernelSpec& spec, const Tile& tile,
                                     const GpuTarget& target) {
  ASSIGN_OR_RETURN(AttentionGraph graph, ReadAttention(kernel));
  Parts parts{.operands = true, .args_header = "kernels/attention_args.h"};
  for (CacheSide* side : {&graph.k, &graph.v}) {
    RETURN_IF_ERROR(AddHeader(side->decode.getSequence(), parts));
    RETURN_IF_ERROR(AddHeader(side->decode.getScaleSequence(), parts));
    if (side->block_factor) {
      parts.format_headers.insert(
          FactorFunction(side->block_factor.getType().getElement())
              ->header.str());
    }
  }
  SpecBlock block;
  block.AddSpec(spec);
  block.Constant("kCausal", graph.mask.getCausal());
  block.Constant("kWindow",
                 static_cast<int>(graph.mask.getWindow().value_or(0)));
  block.Constant("kCustomMask", graph.mask.getCustom());
  block.Constant("kSparseBlock",
                 static_cast<int>(graph.mask.getSelected().value_or(0)));
  block.Constant("kAlibi", graph.alibi);
  block.Constant("kScoreFunction", static_cast<bool>(graph.score_map));
  block.Constant("kSinks", graph.softmax.getSinks());
  block.AddTile(spec, tile);
  if (spec.kernel == KernelKind::kDecode) {
    block.Constant("kTensorCopies", target.has_tensor_copies);
  }
  block.Alias("QueryElement", DeviceElement(graph.q.getType().getElement()));
  block.Alias("OutElement", DeviceElement(spec.out));
  block.Alias("ScoreOperand",
              DeviceOperand(graph.k.decode.getType().getElement()));
  block.Alias("ValueOperand",
              DeviceOperand(graph.v.decode.getType().getElement()));
  block.Constant("kScaleQueryRows", graph.row_scaled_q);
  if (IsFp8(spec)) {
    // Whether ScoreMap is the dot times factors and no more.
    block.Constant("kScoreIsProduct", IsProduct(graph.score_ops));
  }
  parts.block = block.Text();
  ASSIGN_OR_RETURN(const std::string maps, PrintMaps(graph));
  parts.functions = absl::StrCat(PrintSide(graph.k, "KSide"),
                                 PrintSide(graph.v, "VSide"), "\n", maps);
  return parts;
}

absl::StatusOr<Parts> StoreParts(kv::KernelOp kernel, const KernelSpec& spec,
                                 const Tile& tile) {
  Parts parts{.args_header = "kernels/store_args.h"};
  SpecBlock block;
  block.AddSpec(spec);
  block.AddTile(spec, tile);
  std::string source, quantizers[2];
  for (auto store : kernel.getBody().front().getOps<kv::StoreCodesOp>()) {
    auto quantize = store.getCodes().getDefiningOp<kv::QuantizeOp>();
    auto rows = quantize ? quantize.getRows().getDefiningOp<kv::LoadRowsOp>()
                         : kv::LoadRowsOp();
    if (!rows) {
      return NoTemplate(store, "codes that are not quantized source rows",
                        "store what kv.quantize gives");
    }
    source = DeviceElement(rows.getType().getElement());
    RETURN_IF_ERROR(AddHeader(quantize.getEncoder(), parts));
    RETURN_IF_ERROR(AddHeader(quantize.getScaleEncoder(), parts));
    ASSIGN_OR_RETURN(const RowQuantizerUse quantizer,
                     FindRowQuantizer(quantize));
    parts.format_headers.insert(quantizer.header);
    quantizers[store.getSide() == "v"] = quantizer.type;
  }
  if (quantizers[0].empty() || quantizers[1].empty()) {
    return absl::InvalidArgumentError(
        "emit: a store kernel without kv.store_codes of both sides; the "
        "template stores K and V; add the other");
  }
  block.Alias("SourceElement", source);
  block.Alias("KQuantizer", quantizers[0]);
  block.Alias("VQuantizer", quantizers[1]);
  parts.block = block.Text();
  return parts;
}

absl::StatusOr<Parts> GatherParts(kv::KernelOp kernel, const KernelSpec& spec,
                                  const Tile& tile) {
  Parts parts{.operands = true, .args_header = "kernels/gather_args.h"};
  SpecBlock block;
  block.AddSpec(spec);
  block.AddTile(spec, tile);
  block.Alias("OutElement", DeviceElement(spec.out));
  parts.block = block.Text();
  std::string sides[2];
  for (auto store : kernel.getBody().front().getOps<kv::StoreRowsOp>()) {
    ASSIGN_OR_RETURN(const RowDecoder decoder, PrintRowDecoder(store));
    parts.format_headers.insert(decoder.headers.begin(), decoder.headers.end());
    sides[store.getSide() == "v"] = decoder.text;
  }
  if (sides[0].empty() || sides[1].empty()) {
    return absl::InvalidArgumentError(
        "emit: a gather kernel without kv.store_rows of both sides; the "
        "template reads K and V; add the other");
  }
  parts.functions = sides[0] + sides[1];
  return parts;
}

absl::StatusOr<Parts> MergeParts(kv::KernelOp kernel, const KernelSpec& spec,
                                 const Tile& tile) {
  auto yield = mlir::cast<kv::YieldOp>(kernel.getBody().front().back());
  for (mlir::Value value : yield.getResults()) {
    auto merge = value.getDefiningOp<kv::MergeOp>();
    if (!merge || !merge.getOut().getDefiningOp<kv::LoadPartialsOp>()) {
      return NoTemplate(yield, "a merge of anything but loaded partials",
                        "yield kv.merge of kv.load_partials");
    }
  }
  Parts parts{.args_header = "kernels/merge_args.h"};
  SpecBlock block;
  block.AddSpec(spec);
  block.AddTile(spec, tile);
  block.Alias("OutElement", DeviceElement(spec.out));
  parts.block = block.Text();
  return parts;
}

absl::StatusOr<Parts> PartsOf(kv::KernelOp kernel, const KernelSpec& spec,
                              const Tile& tile, const GpuTarget& target) {
  switch (spec.kernel) {
    case KernelKind::kStore:
      return StoreParts(kernel, spec, tile);
    case KernelKind::kDecode:
    case KernelKind::kExtend:
      return AttentionParts(kernel, spec, tile, target);
    case KernelKind::kMerge:
      return MergeParts(kernel, spec, tile);
    case KernelKind::kGather:
      return GatherParts(kernel, spec, tile);
  }
  llvm_unreachable("every KernelKind has parts");
}

class EmitCudaPass : public impl::KvEmitCudaBase<EmitCudaPass> {
 public:
  using KvEmitCudaBase::KvEmitCudaBase;

  void runOnOperation() override {
    const absl::StatusOr<const GpuTarget*> target = FindTarget(gpu);
    const absl::StatusOr<std::string> text =
        target.ok() ? EmitCuda(getOperation(), **target)
                    : absl::StatusOr<std::string>(target.status());
    if (!text.ok()) {
      EmitStatus(getOperation(), text.status());
      return signalPassFailure();
    }
    llvm::outs() << *text;
  }
};

}  // namespace

absl::StatusOr<std::string> EmitCuda(kv::KernelOp kernel,
                                     const GpuTarget& target) {
  ASSIGN_OR_RETURN(const KernelSpec spec, SpecOf(kernel));
  if (!kernel.getTile()) {
    return absl::FailedPreconditionError(
        "emit: kernel without a tile; supported is the IR behind "
        "kv-choose-tile; run it first");
  }
  ASSIGN_OR_RETURN(const Tile tile, ParseTile(View(*kernel.getTile())));
  ASSIGN_OR_RETURN(const Parts parts, PartsOf(kernel, spec, tile, target));

  std::string text = absl::StrCat("// ", spec.Text(), " for ", target.name,
                                  ", tile ", tile.Text(), "\n");
  const auto include = [&](absl::string_view header) {
    absl::StrAppend(&text, "#include \"", header, "\"\n");
  };
  include("arch/select.cuh");
  include("formats/element.cuh");
  if (parts.operands) include("formats/operand.cuh");
  for (const std::string& header : parts.format_headers) include(header);
  include(parts.args_header);
  absl::StrAppend(&text, "\nnamespace kvforge::spec {\n\n", parts.block);
  if (!parts.functions.empty()) absl::StrAppend(&text, "\n", parts.functions);
  absl::StrAppend(&text, "\n}  // namespace kvforge::spec\n\n");
  include(TemplateOf(spec, tile));
  return text;
}

}  // namespace kvforge

#include "compiler/emit/row_decoder.h"

#include "absl/strings/str_cat.h"
#include "compiler/diagnostics.h"
#include "compiler/dialect/kv_shapes.h"
#include "compiler/emit/attention_graph.h"
#include "compiler/emit/map_printer.h"
#include "compiler/emit/spec_block.h"
#include "compiler/passes/codec_table.h"

namespace kvforge {
namespace {

using kv::Dim;
using kv::DimName;
using kv::ElementKind;

// The scales of a dequant, by how the template reads them.
struct Sidecars {
  bool row = false;
  int block = 0;  // channels
  ElementKind block_element = ElementKind::kE4m3;
  enum { kNone, kTensor, kHead, kChannel } given = kNone;
};

absl::StatusOr<Sidecars> ReadSidecars(kv::DequantOp dequant) {
  Sidecars sidecars;
  for (mlir::Value scale : dequant.getScales()) {
    const auto type = mlir::cast<kv::ScaleType>(scale.getType());
    const llvm::ArrayRef<Dim> dims = type.getDims();
    mlir::Operation* source = scale.getDefiningOp();
    const bool stored = mlir::isa_and_nonnull<kv::LoadScaleOp>(source);
    const bool given = mlir::isa_and_nonnull<kv::ArgScaleOp>(source);
    if (given && kv::IsUniform(dims) && !sidecars.given) {
      sidecars.given = dims.empty() ? Sidecars::kTensor : Sidecars::kHead;
    } else if (given && kv::IsPerChannel(dims) && !sidecars.given) {
      sidecars.given = Sidecars::kChannel;
    } else if (stored && dims.size() == 1 && dims[0] == Dim{DimName::kKey} &&
               !sidecars.row) {
      sidecars.row = true;
    } else if (stored && dims.size() == 2 && dims[1].block > 1 &&
               sidecars.block == 0) {
      sidecars.block = dims[1].block;
      sidecars.block_element = type.getElement();
    } else {
      return NoTemplate(dequant,
                        absl::StrCat("a scale over '", kv::DimsText(dims), "'"),
                        "use a format that needs none");
    }
  }
  if (sidecars.row && sidecars.given) {
    return NoTemplate(dequant, "a row scale and a given one",
                      "store their product");
  }
  return sidecars;
}

// What a side multiplies its decoded codes by, but for the block scale.
std::string ScaleText(const Sidecars& sidecars, absl::string_view view) {
  if (sidecars.row) return "row_scale";
  if (sidecars.given == Sidecars::kTensor) {
    return absl::StrCat("formats::GivenScale(args.", view, ")");
  }
  if (sidecars.given == Sidecars::kHead) {
    return absl::StrCat("formats::GivenHeadScale(args.", view, ", kv_head)");
  }
  return "1.0f";
}

std::string Flag(bool value) { return value ? "true" : "false"; }

}  // namespace

absl::StatusOr<RowDecoder> PrintRowDecoder(kv::StoreRowsOp store) {
  auto dequant = store.getRows().getDefiningOp<kv::DequantOp>();
  if (!dequant) {
    return NoTemplate(store, "rows that are not dequantized codes",
                      "write what kv.dequant gives");
  }
  const CodecFunction* codes =
      FindCodecFunction(dequant.getSequence().value_or(llvm::StringRef()));
  if (!codes) {
    return absl::FailedPreconditionError(
        "emit: a kv.dequant without a sequence; supported is the IR behind "
        "kv-lower-codec; run it first");
  }
  const absl::StatusOr<Sidecars> read = ReadSidecars(dequant);
  if (!read.ok()) return read.status();
  const Sidecars& sidecars = *read;
  const bool minimum = static_cast<bool>(dequant.getMinimum());
  const bool ue8m0 = sidecars.block_element == ElementKind::kUe8m0;
  const bool key_side = store.getSide() == "k";
  const ElementKind element = dequant.getCodes().getType().getElement();
  const int bits = kv::ElementBits(element);
  // One function passes both 16-bit elements through.
  const ElementKind decoded = bits == 16 ? element : codes->operand;

  RowDecoder decoder;
  decoder.headers.insert(codes->header.str());
  if (sidecars.block > 0) {
    decoder.headers.insert(ue8m0 ? "formats/ue8m0.cuh" : "formats/e4m3.cuh");
  }
  const std::string scale = ScaleText(sidecars, key_side ? "k" : "v");
  const bool per_channel = sidecars.given == Sidecars::kChannel;
  const bool scaled = scale != "1.0f" || per_channel;
  const auto parameter = [](absl::string_view type, absl::string_view name,
                            bool used) {
    return used ? absl::StrCat(type, " ", name)
                : absl::StrCat(type, " /*", name, "*/");
  };

  std::string& text = decoder.text;
  text = absl::StrCat(
      "struct ", key_side ? "KSide" : "VSide", " {\n",
      "  using Element = ", DeviceElement(decoded),
      ";  // what codes decode to\n",
      "  static constexpr int kCodeBits = ", bits, ";\n",
      "  static constexpr bool kRowScale = ", Flag(sidecars.row), ";\n",
      "  static constexpr bool kRowMinimum = ", Flag(minimum), ";\n",
      "  static constexpr int kBlock = ", sidecars.block, ";\n",
      "  static constexpr bool kChannelScale = ", Flag(per_channel),
      ";  // given, in place of Scale\n",
      "  // Codes are values.\n  static constexpr bool kPlain = ",
      Flag(!scaled && sidecars.block == 0 && !minimum &&
           codes->repay_exponent == 0),
      ";\n", "  // ", FourCodesText(bits), " to two pairs.\n",
      "  static __device__ void Decode4(u32 lo, ",
      parameter("u32", "hi", bits != 8),
      ", u32 (&out)[2]) {\n    formats::", View(codes->name),
      bits != 8 ? "(lo, hi, out);\n" : "(lo, out);\n", "  }\n",
      "  // The scale of a block from its code; kBlock > 0 only.\n",
      "  static __device__ float BlockScale(u32 code)");
  if (sidecars.block > 0) {
    absl::StrAppend(&text, " {\n    return formats::",
                    ue8m0 ? "Ue8m0ToF32" : "E4m3ToF32", "(code);\n  }\n");
  } else {
    absl::StrAppend(&text, ";\n");
  }
  absl::StrAppend(
      &text, "  // One value for all elements of a row.\n",
      "  static __device__ float Scale(",
      parameter("const GatherArgs&", "args",
                sidecars.given != Sidecars::kNone && !per_channel),
      ", ", parameter("int", "kv_head", sidecars.given == Sidecars::kHead),
      ", ", parameter("float", "row_scale", sidecars.row), ") {\n    return ",
      scale, ";\n  }\n",
      "  // One value, rounded once, from what Decode4 gives.\n",
      "  static __device__ float Value(float x, ",
      parameter("float", "block_scale", sidecars.block > 0), ", ",
      parameter("float", "scale", scaled), ", ",
      parameter("float", "minimum", minimum), ") {\n");
  if (codes->repay_exponent != 0) {
    absl::StrAppend(&text, "    x = x * ",
                    PowerOfTwoLiteral(codes->repay_exponent), ";\n");
  }
  if (sidecars.block > 0) absl::StrAppend(&text, "    x = x * block_scale;\n");
  if (minimum) {
    absl::StrAppend(&text, "    x = arch::Fma(x, ", scaled ? "scale" : "1.0f",
                    ", minimum);\n");
  } else if (scaled) {
    absl::StrAppend(&text, "    x = x * scale;\n");
  }
  absl::StrAppend(&text, "    return x;\n  }\n};\n");
  return decoder;
}

}  // namespace kvforge

// The device functions that decode and encode elements: the only list of them.
// What a GPU can use, and what is exact, is decided from these rows.
#ifndef KVFORGE_COMPILER_PASSES_CODEC_TABLE_H_
#define KVFORGE_COMPILER_PASSES_CODEC_TABLE_H_

#include <optional>
#include <string>

#include "compiler/dialect/kv_types.h"
#include "compiler/target/target.h"
#include "llvm/ADT/ArrayRef.h"

namespace kvforge {

// The GPUs that have an instruction: a flag of the target table; null = all.
using Instruction = bool GpuTarget::*;

// A device function of templates/formats, by name. It leaves its results short
// of 2^repay_exponent.
struct CodecFunction {
  kv::ElementKind element;  // of the codes
  kv::ElementKind operand;  // what they become; of encoders: kF32, the source
  llvm::StringLiteral name;
  llvm::StringLiteral header;  // include path
  Instruction instruction;
  int repay_exponent;
};

// Codes to operands, block scale codes to pairs of operands or to f32, f32 to
// codes. The
// first row that a GPU has and that is exact is taken: hardware before
// software.
llvm::ArrayRef<CodecFunction> DecodeFunctions();
llvm::ArrayRef<CodecFunction> ScaleFunctions();
llvm::ArrayRef<CodecFunction> EncodeFunctions();

// The row with that name in any of the lists, or null.
const CodecFunction* FindCodecFunction(llvm::StringRef name);

bool IsAvailable(const CodecFunction& function, const GpuTarget& target);

struct DecodeChoice {
  const CodecFunction* codes = nullptr;
  const CodecFunction* scales = nullptr;  // null without a block scale
  int RepayExponent() const {
    return codes->repay_exponent + (scales ? scales->repay_exponent : 0);
  }
};

// The first pair of functions with which every decoded value, times its block
// scale, is exact in the operand type on `target`; nothing if there is none.
// A 16-bit element is its own operand type.
std::optional<DecodeChoice> ChooseDecode(
    kv::ElementKind element, std::optional<kv::ElementKind> block_scale,
    const GpuTarget& target);

// The function that turns a code of a block scale into an f32 factor, where the
// scale stays out of the operand; null if the element has none.
const CodecFunction* FactorFunction(kv::ElementKind scale);

// The encoder of an element on `target`, or null.
const CodecFunction* ChooseEncode(kv::ElementKind element,
                                  const GpuTarget& target);

// The row of codes that fp8 products of `target` take as they are, or null.
const CodecFunction* UndecodedOperand(kv::ElementKind element,
                                      const GpuTarget& target);

// "bf16, f16, e4m3, e2m1": the elements that have a function, for messages.
std::string DecodableElements();
std::string EncodableElements();

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_PASSES_CODEC_TABLE_H_

// Prints the generated device functions: the scalar arithmetic between the dots
// as the C++ that the templates call.
#ifndef KVFORGE_COMPILER_EMIT_MAP_PRINTER_H_
#define KVFORGE_COMPILER_EMIT_MAP_PRINTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/emit/attention_graph.h"

namespace kvforge {

// A float literal that reads back to the same value: "30.0f".
std::string FloatLiteral(float value);

// 2^exponent as a float literal: "0x1p8f", "0x1p-8f".
std::string PowerOfTwoLiteral(int exponent);

// Which four codes a Decode4 of so many bits a code takes, for its comment.
absl::string_view FourCodesText(int code_bits);

// struct KSide or VSide: code width, sidecars, block scales and Decode4.
std::string PrintSide(const CacheSide& side, absl::string_view name);

// ScoreUniform, ScoreMap, UserScore, ValueWeight, kValueWeightScaled,
// OutUniform.
absl::StatusOr<std::string> PrintMaps(const AttentionGraph& graph);

}  // namespace kvforge

#endif  // KVFORGE_COMPILER_EMIT_MAP_PRINTER_H_

#include "compiler/dialect/kv_types.h"

#include "compiler/dialect/kv_dialect.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

namespace kvforge::kv {
namespace {

struct ElementRow {
  ElementKind element;
  llvm::StringLiteral text;
  int bits;
};
constexpr ElementRow kElements[] = {
    {ElementKind::kF32, "f32", 32},   {ElementKind::kBf16, "bf16", 16},
    {ElementKind::kF16, "f16", 16},   {ElementKind::kE4m3, "e4m3", 8},
    {ElementKind::kE5m2, "e5m2", 8},  {ElementKind::kE2m1, "e2m1", 4},
    {ElementKind::kI8, "i8", 8},      {ElementKind::kU4, "u4", 4},
    {ElementKind::kUe8m0, "ue8m0", 8}};

constexpr llvm::StringLiteral kDimLetters = "mndehs";

const ElementRow& Row(ElementKind element) {
  for (const ElementRow& row : kElements) {
    if (row.element == element) return row;
  }
  llvm_unreachable("every ElementKind has a row");
}

mlir::ParseResult ParseOneDim(mlir::AsmParser& parser, Dim& dim) {
  llvm::StringRef letter;
  const llvm::SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&letter)) return mlir::failure();
  if (letter.size() != 1 || !kDimLetters.contains(letter)) {
    return parser.emitError(loc)
           << "'" << letter
           << "' is no dimension; dimensions: m, n, d, e, h, s";
  }
  dim.name = static_cast<DimName>(letter[0]);
  if (mlir::succeeded(parser.parseOptionalSlash())) {
    if (parser.parseInteger(dim.block)) return mlir::failure();
    if (dim.block < 2) {
      return parser.emitError(loc) << "a block has at least 2 entries";
    }
  }
  return mlir::success();
}

// `<` [dim (`x` dim)*] [`,` element] `>`; without dimensions the element stands
// alone, and without an element it is f32.
template <typename T>
mlir::Type ParseShaped(mlir::AsmParser& parser, bool element_required) {
  Dims dims;
  ElementKind element = ElementKind::kF32;
  const llvm::SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess()) return {};
  if (mlir::failed(parser.parseOptionalGreater())) {
    do {
      if (ParseOneDim(parser, dims.emplace_back())) return {};
    } while (mlir::succeeded(parser.parseOptionalKeyword("x")));
    if (mlir::succeeded(parser.parseOptionalComma())) {
      llvm::StringRef text;
      const llvm::SMLoc at = parser.getCurrentLocation();
      if (parser.parseKeyword(&text)) return {};
      const std::optional<ElementKind> parsed = ParseElement(text);
      if (!parsed) {
        parser.emitError(at) << "'" << text << "' is no element type";
        return {};
      }
      element = *parsed;
    } else if (element_required) {
      parser.emitError(loc) << "the element type is missing";
      return {};
    }
    if (parser.parseGreater()) return {};
  }
  return parser.getChecked<T>(loc, parser.getContext(), dims, element);
}

void PrintShaped(mlir::AsmPrinter& printer, llvm::ArrayRef<Dim> dims,
                 ElementKind element, bool element_required) {
  printer << "<" << DimsText(dims);
  if (element_required || element != ElementKind::kF32) {
    printer << ", " << ElementText(element);
  }
  printer << ">";
}

mlir::LogicalResult VerifyDims(
    llvm::function_ref<mlir::InFlightDiagnostic()> emit_error,
    llvm::ArrayRef<Dim> dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (dims[i].name == dims[j].name) {
        return emit_error() << "dimension " << dims[i].Text()[0]
                            << " appears twice in '" << DimsText(dims) << "'";
      }
    }
  }
  return mlir::success();
}

mlir::LogicalResult VerifyElement(
    llvm::function_ref<mlir::InFlightDiagnostic()> emit_error,
    ElementKind element, llvm::ArrayRef<ElementKind> allowed,
    llvm::StringRef type) {
  if (llvm::is_contained(allowed, element)) return mlir::success();
  mlir::InFlightDiagnostic error = emit_error();
  error << type << " of " << ElementText(element)
        << " does not exist; elements of " << type << ": ";
  llvm::interleaveComma(allowed, error,
                        [&](ElementKind e) { error << ElementText(e); });
  return error;
}

}  // namespace

std::string Dim::Text() const {
  std::string text(1, static_cast<char>(name));
  if (block > 1) text += "/" + std::to_string(block);
  return text;
}

llvm::StringRef ElementText(ElementKind element) { return Row(element).text; }

int ElementBits(ElementKind element) { return Row(element).bits; }

std::optional<ElementKind> ParseElement(llvm::StringRef text) {
  for (const ElementRow& row : kElements) {
    if (row.text == text) return row.element;
  }
  return std::nullopt;
}

std::optional<Dim> ParseDim(llvm::StringRef text) {
  if (text.empty() || !kDimLetters.contains(text[0])) return std::nullopt;
  Dim dim{static_cast<DimName>(text[0])};
  text = text.drop_front();
  if (text.empty()) return dim;
  if (!text.consume_front("/") || text.getAsInteger(10, dim.block) ||
      dim.block < 2) {
    return std::nullopt;
  }
  return dim;
}

std::string DimsText(llvm::ArrayRef<Dim> dims) {
  std::string text;
  for (const Dim& dim : dims) {
    if (!text.empty()) text += " x ";
    text += dim.Text();
  }
  return text;
}

mlir::Type MatType::parse(mlir::AsmParser& parser) {
  return ParseShaped<MatType>(parser, /*element_required=*/true);
}
void MatType::print(mlir::AsmPrinter& printer) const {
  PrintShaped(printer, getDims(), getElement(), /*element_required=*/true);
}
mlir::LogicalResult MatType::verify(
    llvm::function_ref<mlir::InFlightDiagnostic()> emit_error,
    llvm::ArrayRef<Dim> dims, ElementKind element) {
  if (dims.empty()) return emit_error() << "mat needs a dimension";
  if (mlir::failed(VerifyDims(emit_error, dims))) return mlir::failure();
  return VerifyElement(emit_error, element,
                       {ElementKind::kF32, ElementKind::kBf16,
                        ElementKind::kF16, ElementKind::kE4m3},
                       "mat");
}

mlir::Type CodesType::parse(mlir::AsmParser& parser) {
  return ParseShaped<CodesType>(parser, /*element_required=*/true);
}
void CodesType::print(mlir::AsmPrinter& printer) const {
  PrintShaped(printer, getDims(), getElement(), /*element_required=*/true);
}
mlir::LogicalResult CodesType::verify(
    llvm::function_ref<mlir::InFlightDiagnostic()> emit_error,
    llvm::ArrayRef<Dim> dims, ElementKind element) {
  if (dims.size() != 2 || dims[0] != Dim{DimName::kKey} || dims[1].block != 1) {
    return emit_error()
           << "codes are tokens by channels, such as 'n x d', not '"
           << DimsText(dims) << "'";
  }
  if (mlir::failed(VerifyDims(emit_error, dims))) return mlir::failure();
  return VerifyElement(emit_error, element,
                       {ElementKind::kBf16, ElementKind::kF16,
                        ElementKind::kE4m3, ElementKind::kE5m2,
                        ElementKind::kE2m1, ElementKind::kI8, ElementKind::kU4},
                       "codes");
}

mlir::Type ScaleType::parse(mlir::AsmParser& parser) {
  return ParseShaped<ScaleType>(parser, /*element_required=*/false);
}
void ScaleType::print(mlir::AsmPrinter& printer) const {
  PrintShaped(printer, getDims(), getElement(), /*element_required=*/false);
}
mlir::LogicalResult ScaleType::verify(
    llvm::function_ref<mlir::InFlightDiagnostic()> emit_error,
    llvm::ArrayRef<Dim> dims, ElementKind element) {
  if (mlir::failed(VerifyDims(emit_error, dims))) return mlir::failure();
  return VerifyElement(
      emit_error, element,
      {ElementKind::kF32, ElementKind::kE4m3, ElementKind::kUe8m0}, "scale");
}

}  // namespace kvforge::kv

#define GET_TYPEDEF_CLASSES
#include "compiler/dialect/KvTypes.cc.inc"

namespace kvforge::kv {

void KvDialect::RegisterTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/dialect/KvTypes.cc.inc"
      >();
}

}  // namespace kvforge::kv

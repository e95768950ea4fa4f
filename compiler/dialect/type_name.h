// llvm::getTypeName with Clang's spelling, for GCC; included before everything
// else in the files that see MLIR (compiler/CMakeLists.txt).
//
// MLIR identifies an operation's traits by the name of Trait<Empty>, Empty
// being a class local to mlir::TypeID::get<Trait>(). Clang, which the
// distribution builds libMLIR with, spells it "Trait<Empty>", GCC
// "Trait<mlir::TypeID::get<Trait>()::Empty>". With two spellings libMLIR takes
// our terminators and isolated ops for ordinary ones. Clang needs nothing here.
#ifndef KVFORGE_COMPILER_DIALECT_TYPE_NAME_H_
#define KVFORGE_COMPILER_DIALECT_TYPE_NAME_H_

#if defined(__GNUC__) && !defined(__clang__)

#define LLVM_SUPPORT_TYPENAME_H  // stands in for llvm/Support/TypeName.h

#include <array>
#include <string_view>

#include "llvm/ADT/StringRef.h"

namespace kvforge {

// const char*, not string_view: GCC appends what an alias in the signature is.
template <typename DesiredTypeName>
constexpr const char* PrettyName() {
  return __PRETTY_FUNCTION__;
}

template <typename T>
struct TypeName {
  static constexpr std::string_view Raw() {
    constexpr std::string_view kKey = "DesiredTypeName = ";
    const std::string_view pretty = PrettyName<T>();
    const std::string_view name =
        pretty.substr(pretty.find(kKey) + kKey.size());
    return name.substr(0, name.size() - 1);  // "]"
  }
  static constexpr std::string_view kLocal = "<mlir::TypeID::get<";
  static constexpr std::string_view kSuffix = "()::Empty>";
  static constexpr std::string_view kShort = "<Empty>";

  static constexpr bool IsTrait() {
    const std::string_view raw = Raw();
    return raw.find(kLocal) != std::string_view::npos &&
           raw.size() > kSuffix.size() &&
           raw.substr(raw.size() - kSuffix.size()) == kSuffix;
  }
  static constexpr size_t kSize =
      IsTrait() ? Raw().find(kLocal) + kShort.size() : Raw().size();
  static constexpr std::array<char, kSize> Build() {
    std::array<char, kSize> text{};
    const size_t kept = IsTrait() ? kSize - kShort.size() : kSize;
    for (size_t i = 0; i < kept; ++i) text[i] = Raw()[i];
    for (size_t i = kept; i < kSize; ++i) text[i] = kShort[i - kept];
    return text;
  }
  static constexpr std::array<char, kSize> kText = Build();
};

}  // namespace kvforge

namespace llvm {

template <typename DesiredTypeName>
inline constexpr StringRef getTypeName() {
  using Name = kvforge::TypeName<DesiredTypeName>;
  return StringRef(Name::kText.data(), Name::kSize);
}

}  // namespace llvm

#endif  // GCC

#endif  // KVFORGE_COMPILER_DIALECT_TYPE_NAME_H_

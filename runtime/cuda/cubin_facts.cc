#include "runtime/cuda/cubin_facts.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace kvforge {
namespace {

constexpr int kMachineCuda = 190;  // EM_CUDA
// The GPU lies in other bits of e_flags since CUDA 13.
constexpr int kAbiVersionCuda13 = 8;

// .nv.info and .nv.info.<kernel> are lists of records: u8 format, u8 attribute,
// u16 value; with the sized format the value is the number of bytes that
// follow.
constexpr uint8_t kFormatSized = 4;
constexpr uint8_t kAttributeFrameSize = 0x11;  // u32 symbol, u32 bytes
// u32 index, u16 ordinal, u16 offset, u32 size and flags.
constexpr uint8_t kAttributeParam = 0x17;
constexpr uint8_t kAttributeParamBytes = 0x19;  // value: the end of the last
constexpr uint8_t kAttributeRegisters = 0x2f;   // u32 symbol, u32 count
constexpr uint8_t kAttributeToolkit = 0x37;     // u32 version

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("no whole cubin: ", what));
}

// `count` objects of T at `offset`, copied since they may be unaligned.
template <typename T>
std::optional<T> Load(absl::string_view bytes, uint64_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) {
    return std::nullopt;
  }
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// The zero-terminated text at `offset`; empty where it does not end.
absl::string_view TextAt(absl::string_view bytes, uint64_t offset) {
  if (offset >= bytes.size()) return {};
  const absl::string_view rest = bytes.substr(offset);
  const size_t end = rest.find('\0');
  return end == absl::string_view::npos ? absl::string_view()
                                        : rest.substr(0, end);
}

struct Section {
  absl::string_view name;
  absl::string_view bytes;  // empty for SHT_NOBITS
  uint32_t link = 0;
};

// An ELF64 file whose sections all lie inside it.
class Elf {
 public:
  static absl::StatusOr<Elf> Parse(absl::string_view file) {
    Elf elf;
    const auto header = Load<Elf64_Ehdr>(file, 0);
    if (!header) return Damaged("it ends inside the ELF header");
    if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB) {
      return Damaged("no little-endian ELF64 file");
    }
    if (header->e_machine != kMachineCuda) {
      return Damaged(
          absl::StrCat("ELF machine ", header->e_machine, " is not CUDA"));
    }
    if (header->e_shentsize != sizeof(Elf64_Shdr)) {
      return Damaged("section headers of an unknown size");
    }
    // What the driver maps; its own check of lengths is not relied on.
    if (header->e_phoff > file.size() ||
        uint64_t{header->e_phnum} * header->e_phentsize >
            file.size() - header->e_phoff) {
      return Damaged("it ends inside the program headers");
    }
    elf.header_ = *header;
    std::vector<Elf64_Shdr> headers;
    for (int i = 0; i < header->e_shnum; ++i) {
      // No overflow: Load refuses an offset past the file.
      const auto section =
          header->e_shoff > file.size()
              ? std::nullopt
              : Load<Elf64_Shdr>(file,
                                 header->e_shoff + i * sizeof(Elf64_Shdr));
      if (!section) return Damaged("it ends inside the section headers");
      headers.push_back(*section);
    }
    for (const Elf64_Shdr& section : headers) {
      Section parsed;
      parsed.link = section.sh_link;
      if (section.sh_type != SHT_NOBITS) {
        if (section.sh_offset > file.size() ||
            section.sh_size > file.size() - section.sh_offset) {
          return Damaged("a section reaches past the end");
        }
        parsed.bytes = file.substr(section.sh_offset, section.sh_size);
      }
      elf.sections_.push_back(parsed);
    }
    if (header->e_shstrndx >= headers.size()) {
      return Damaged("no section names");
    }
    const absl::string_view names = elf.sections_[header->e_shstrndx].bytes;
    for (size_t i = 0; i < headers.size(); ++i) {
      elf.sections_[i].name = TextAt(names, headers[i].sh_name);
    }
    return elf;
  }

  const Elf64_Ehdr& header() const { return header_; }

  const Section* Find(absl::string_view name) const {
    for (const Section& section : sections_) {
      if (section.name == name) return &section;
    }
    return nullptr;
  }

  const Section* At(uint32_t index) const {
    return index < sections_.size() ? &sections_[index] : nullptr;
  }

  // The symbol of that name and its index in the table.
  std::optional<Elf64_Sym> FindSymbol(absl::string_view name,
                                      uint32_t* index = nullptr) const {
    const Section* table = Find(".symtab");
    const Section* names = table == nullptr ? nullptr : At(table->link);
    if (names == nullptr) return std::nullopt;
    for (uint32_t i = 0;; ++i) {
      const auto symbol =
          Load<Elf64_Sym>(table->bytes, uint64_t{i} * sizeof(Elf64_Sym));
      if (!symbol) return std::nullopt;
      if (TextAt(names->bytes, symbol->st_name) != name) continue;
      if (index != nullptr) *index = i;
      return symbol;
    }
  }

 private:
  Elf64_Ehdr header_;
  std::vector<Section> sections_;
};

// The value of an attribute: its own, or for sized records the first word, or
// with a `symbol` the second word of the one whose first word is that.
std::optional<int> FindAttribute(const Section* section, uint8_t attribute,
                                 std::optional<uint32_t> symbol) {
  if (section == nullptr) return std::nullopt;
  const absl::string_view bytes = section->bytes;
  for (uint64_t at = 0;;) {
    const auto format = Load<uint8_t>(bytes, at);
    const auto found = Load<uint8_t>(bytes, at + 1);
    const auto value = Load<uint16_t>(bytes, at + 2);
    if (!value) return std::nullopt;
    const bool sized = *format == kFormatSized;
    if (*found == attribute) {
      if (!sized) return *value;
      const auto first = Load<uint32_t>(bytes, at + 4);
      const auto second = Load<uint32_t>(bytes, at + 8);
      if (first && !symbol) return static_cast<int>(*first);
      if (second && *first == symbol) return static_cast<int>(*second);
    }
    at += 4 + (sized ? *value : 0);
  }
}

int ComputeCapability(const Elf64_Ehdr& header) {
  return header.e_ident[EI_ABIVERSION] >= kAbiVersionCuda13
             ? static_cast<int>(header.e_flags >> 8 & 0xff)
             : static_cast<int>(header.e_flags & 0xff);
}

}  // namespace

absl::StatusOr<CubinFacts> ReadCubinFacts(absl::string_view cubin,
                                          absl::string_view kernel) {
  ASSIGN_OR_RETURN(const Elf elf, Elf::Parse(cubin));
  uint32_t symbol = 0;
  if (!elf.FindSymbol(kernel, &symbol) ||
      elf.Find(absl::StrCat(".text.", kernel)) == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "the cubin has no kernel \"", kernel,
        "\"; kernels are extern \"C\" __global__; compile it again or name "
        "another"));
  }
  const Section* info = elf.Find(".nv.info");
  const auto registers = FindAttribute(info, kAttributeRegisters, symbol);
  const auto frame_bytes = FindAttribute(info, kAttributeFrameSize, symbol);
  const Section* kernel_info = elf.Find(absl::StrCat(".nv.info.", kernel));
  const auto param_bytes =
      FindAttribute(kernel_info, kAttributeParamBytes, std::nullopt);
  if (!registers || !frame_bytes) {
    return Damaged(
        absl::StrCat("no register count or frame size of \"", kernel, "\""));
  }
  CubinFacts facts;
  facts.compute_capability = ComputeCapability(elf.header());
  facts.registers = *registers;
  facts.local_bytes = *frame_bytes;
  // The first parameter does not start at 0 where it is aligned to more than
  // its space is.
  const int first_offset =
      FindAttribute(kernel_info, kAttributeParam, uint32_t{0}).value_or(0) >>
      16;
  facts.param_bytes = param_bytes.value_or(0) - first_offset;
  facts.toolkit_version =
      FindAttribute(kernel_info, kAttributeToolkit, std::nullopt).value_or(0);
  return facts;
}

absl::StatusOr<int> ReadConstantInt(absl::string_view cubin,
                                    absl::string_view name) {
  ASSIGN_OR_RETURN(const Elf elf, Elf::Parse(cubin));
  const std::optional<Elf64_Sym> symbol = elf.FindSymbol(name);
  if (!symbol) {
    return absl::NotFoundError(absl::StrCat(
        "the cubin has no constant \"", name,
        "\"; it is declared as extern \"C\" __constant__ int with a value"));
  }
  const Section* section = elf.At(symbol->st_shndx);
  const auto value = section == nullptr
                         ? std::nullopt
                         : Load<int32_t>(section->bytes, symbol->st_value);
  if (!value || symbol->st_size != sizeof(int32_t)) {
    return Damaged(absl::StrCat("the value of \"", name, "\" is not in it"));
  }
  return *value;
}

absl::StatusOr<int> ReadOptionalConstantInt(absl::string_view cubin,
                                            absl::string_view name) {
  absl::StatusOr<int> value = ReadConstantInt(cubin, name);
  if (absl::IsNotFound(value.status())) return -1;
  return value;
}

}  // namespace kvforge

#include "tests/arch/micro_cases.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "templates/embedded.h"

namespace kvforge {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(absl::StrCat(KVFORGE_TEST_DATA, "/arch/", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool Matches(const MicroCase& micro, uint32_t got, uint32_t want) {
  if (got == want) return true;
  if (micro.absolute == 0 && micro.relative == 0) return false;
  const double x = std::bit_cast<float>(got);
  const double y = std::bit_cast<float>(want);
  return std::abs(x - y) <= micro.absolute + micro.relative * std::abs(y);
}

}  // namespace

void PrintTo(const MicroCase& micro, std::ostream* out) { *out << micro.name; }

std::vector<MicroCase> MicroCases() {
  std::vector<MicroCase> cases;
  for (const auto& part : {ConvertCases(), MathCases(), WarpCases(),
                           MemoryCases(), ProductCases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

MicroCase EachCase(std::string file, int words, std::vector<uint32_t> in,
                   std::vector<uint32_t> expected) {
  MicroCase micro;
  micro.name = file;
  micro.file = std::move(file);
  micro.n = static_cast<int>(in.size()) / words;
  micro.in = std::move(in);
  micro.expected = std::move(expected);
  micro.grid_blocks = 3;
  return micro;
}

std::string MicroText(const MicroCase& micro) {
  return absl::StrCat(micro.constants,
                      ReadText(absl::StrCat("micro/", micro.file, ".cuh")));
}

std::vector<std::pair<std::string, std::string>> MicroIncludes() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* path : {"micro/args.cuh", "micro/each.cuh"}) {
    files.emplace_back(path, ReadText(path));
  }
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    files.emplace_back(std::string(file.path), std::string(file.text));
  }
  return files;
}

std::string MicroMismatches(const MicroCase& micro,
                            const std::vector<uint32_t>& out) {
  if (out.size() != micro.expected.size()) {
    return absl::StrCat(out.size(), " words instead of ",
                        micro.expected.size());
  }
  constexpr int kShown = 5;
  std::string text;
  int wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (Matches(micro, out[i], micro.expected[i])) continue;
    if (++wrong > kShown) continue;
    absl::StrAppendFormat(&text, "word %d: 0x%08x (%g) instead of 0x%08x (%g)",
                          i, out[i], std::bit_cast<float>(out[i]),
                          micro.expected[i],
                          std::bit_cast<float>(micro.expected[i]));
    const size_t items = micro.n > 0 ? micro.in.size() / micro.n : 0;
    if (micro.grid_blocks == 3 && items > 0 &&
        (i + 1) * items <= micro.in.size()) {
      for (size_t k = 0; k < items; ++k) {
        absl::StrAppendFormat(&text, " in 0x%08x", micro.in[i * items + k]);
      }
    }
    text += "\n";
  }
  if (wrong > kShown) absl::StrAppend(&text, "... ", wrong, " words wrong\n");
  return text;
}

}  // namespace kvforge

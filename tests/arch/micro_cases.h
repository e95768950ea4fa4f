// The micro-kernels: one or more cases for each arch function, with inputs and
// with outputs that scalar code computed independently of the twin. The same
// text runs on the host target and on a GPU, and both must give them.
#ifndef KVFORGE_TESTS_ARCH_MICRO_CASES_H_
#define KVFORGE_TESTS_ARCH_MICRO_CASES_H_

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tensor_map.h"

namespace kvforge {

// What the text declares in micro/args.cuh.
struct MicroArgs {
  const unsigned* in;
  unsigned* out;
  int n;
  TensorMap map;
};

struct MicroCase {
  std::string name;
  std::string file;       // tests/arch/micro/<file>.cuh
  std::string constants;  // text ahead of the file's
  int n = 0;              // MicroArgs::n
  std::vector<uint32_t> in;
  std::vector<uint32_t> expected;  // every word of the output
  int grid_blocks = 1;
  std::optional<TensorBox> box;     // of `in`; base is set by the runners
  int min_compute_capability = 80;  // that has the function
  int max_compute_capability = 999;
  // |out - expected| <= absolute + relative * |expected| on words that are f32;
  // both 0: bit for bit.
  double absolute = 0;
  double relative = 0;
};

// Its name, where a test would print the bytes of the struct.
void PrintTo(const MicroCase& micro, std::ostream* out);

std::vector<MicroCase> MicroCases();
std::vector<MicroCase> ConvertCases();
std::vector<MicroCase> MathCases();
std::vector<MicroCase> WarpCases();
std::vector<MicroCase> MemoryCases();
std::vector<MicroCase> ProductCases();

// A case of micro/each.cuh: `words` input words an item.
MicroCase EachCase(std::string file, int words, std::vector<uint32_t> in,
                   std::vector<uint32_t> expected);

// What the runners put in every word of the output before a run.
inline constexpr uint32_t kMicroUnwritten = 0xdeadbeef;

std::string MicroText(const MicroCase& micro);
// Path as included, and text, of what the texts include.
std::vector<std::pair<std::string, std::string>> MicroIncludes();

// The first five words of `out` that are wrong, or "".
std::string MicroMismatches(const MicroCase& micro,
                            const std::vector<uint32_t>& out);

}  // namespace kvforge

#endif  // KVFORGE_TESTS_ARCH_MICRO_CASES_H_

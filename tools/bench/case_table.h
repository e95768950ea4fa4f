// What `kvforge bench` measures, as data: families of cases, their names and
// how a command line chooses among them.
//
//   decode/e4m3_row/d128/g4/page16/b64/kv8192[/skew100]
//   store/e4m3_row/d128/page16/t65536
//   extend/e4m3_row/d128/g4/page16/b1/q2048/kv32768
//   extend-fp8/e4m3_row/...        likewise, with compute=fp8
//   launch/store                   host time of a run call
//   prepare/decode/e4m3_row        from a cache to ready, in a fresh process
//   fetch/decode/e4m3_row          of that what needs no GPU: read and verified
//   specialise/decode/e4m3_row     time to generate and compile; needs no GPU
#ifndef KVFORGE_TOOLS_BENCH_CASE_TABLE_H_
#define KVFORGE_TOOLS_BENCH_CASE_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/formats/format.h"
#include "compiler/spec/kernel_spec.h"

namespace kvforge::bench {

enum class CaseKind {
  kDecode,
  kStore,
  kExtend,
  kLaunch,
  kPrepare,
  kFetch,
  kSpecialise
};

struct BenchCase {
  CaseKind kind = CaseKind::kDecode;
  // Of launch, prepare, fetch and specialise: which one's.
  KernelKind kernel = KernelKind::kDecode;
  const KvFormat* format = nullptr;  // of K and V; into kFormats
  int head_dim = 0;                  // of K and V
  int group = 1;                     // query heads per kv head
  int page_size = 0;                 // tokens
  int batch = 1;                     // sequences
  int q_len = 1;                     // query tokens of each sequence
  int kv_len = 0;  // tokens of each sequence; of store: tokens in all
  int skew = 1;    // the first sequence has this many times kv_len
  bool by_default = true;
  Compute compute = Compute::k16Bit;  // of extend

  std::string Name() const;
  int num_q_heads() const;
  std::vector<int> KvLens() const;  // [batch]
  int64_t KvTokens() const;         // sum of KvLens
  // The kernel that is measured; causal, bf16 in and out.
  KernelSpec Spec() const;
  // Everything that has to be primed: also what fills the cache.
  std::vector<KernelSpec> Specs() const;
};

// Heads of every case's cache.
inline constexpr int kKvHeads = 8;

// The store kernel that fills a cache of `format`.
KernelSpec FillSpec(const KvFormat& format, int head_dim);

// Every case, in the order of the table.
std::vector<BenchCase> AllCases();

// Those that one of `patterns` names: a whole name, the beginning of one up to
// a
// '/', or a glob whose * also crosses '/'. No pattern: those measured by
// default. kInvalidArgument for a pattern that names none.
absl::StatusOr<std::vector<BenchCase>> SelectCases(
    const std::vector<std::string>& patterns);

}  // namespace kvforge::bench

#endif  // KVFORGE_TOOLS_BENCH_CASE_TABLE_H_

#include "tools/bench/case_table.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/shown.h"

namespace kvforge::bench {
namespace {

constexpr int kFillPageSize = 16;

struct Shape {
  int batch;
  int q_len;
  int kv_len;
  int skew = 1;
};

// Every combination of what a family lists is a case.
struct Family {
  CaseKind kind;
  KernelKind kernel;
  std::vector<absl::string_view> formats;
  std::vector<int> head_dims;
  std::vector<int> groups;
  std::vector<int> page_sizes;
  std::vector<Shape> shapes;
  bool by_default = true;
  Compute compute = Compute::k16Bit;
};

std::vector<Family> Families() {
  const std::vector<absl::string_view> measured = {
      "e4m3_row", "e4m3_tensor", "nvfp4_row", "int8_row", "bf16"};
  const std::vector<Shape> any = {{1, 1, 0}};
  return {
      {CaseKind::kDecode,
       KernelKind::kDecode,
       measured,
       {128},
       {4, 8},
       {16, 64},
       {{1, 1, 1024},
        {1, 1, 8192},
        {1, 1, 32768},
        {16, 1, 8192},
        {64, 1, 1024},
        {64, 1, 8192},
        {64, 1, 32768},
        {256, 1, 1024},
        {256, 1, 8192}}},
      // As many bytes, once in one long sequence and once evenly:
      // 63 * 1024 + 100 * 1024 = 64 * 2608.
      {CaseKind::kDecode,
       KernelKind::kDecode,
       {"e4m3_row"},
       {128},
       {4, 8},
       {16, 64},
       {{64, 1, 1024, 100}, {64, 1, 2608}}},
      {CaseKind::kStore,
       KernelKind::kStore,
       {"e4m3_row", "nvfp4_row"},
       {128},
       {1},
       {16},
       {{1, 1, 65536}, {1, 1, 64}}},
      {CaseKind::kExtend,
       KernelKind::kExtend,
       {"e4m3_row", "bf16"},
       {128},
       {4},
       {16, 64},
       {{1, 8192, 8192}, {1, 2048, 32768}, {1, 512, 32768}, {4, 2048, 2048}}},
      {CaseKind::kExtend,
       KernelKind::kExtend,
       {"e4m3_row", "bf16"},
       {64, 256},
       {4},
       {16, 64},
       {{1, 8192, 8192}}},
      {CaseKind::kExtend,
       KernelKind::kExtend,
       {"e4m3_row"},
       {128},
       {4},
       {16, 64},
       {{1, 8192, 8192}, {1, 2048, 32768}, {1, 512, 32768}, {4, 2048, 2048}},
       // Only sm_90 has it.
       false,
       Compute::kFp8},
      {CaseKind::kLaunch,
       KernelKind::kStore,
       {"e4m3_row"},
       {128},
       {1},
       {16},
       {{1, 1, 1}}},
      {CaseKind::kLaunch,
       KernelKind::kDecode,
       {"e4m3_row"},
       {128},
       {4},
       {16},
       {{1, 1, 1}}},
      {CaseKind::kLaunch,
       KernelKind::kExtend,
       {"e4m3_row"},
       {128},
       {4},
       {16},
       {{1, 1, 1}}},
      {CaseKind::kPrepare, KernelKind::kStore, measured, {128}, {1}, {16}, any},
      {CaseKind::kPrepare,
       KernelKind::kDecode,
       measured,
       {128},
       {4},
       {16},
       any},
      {CaseKind::kPrepare,
       KernelKind::kExtend,
       measured,
       {128},
       {4},
       {16},
       any},
      {CaseKind::kFetch,
       KernelKind::kStore,
       measured,
       {128},
       {1},
       {16},
       any,
       false},
      {CaseKind::kFetch,
       KernelKind::kDecode,
       measured,
       {128},
       {4},
       {16},
       any,
       false},
      {CaseKind::kFetch,
       KernelKind::kExtend,
       measured,
       {128},
       {4},
       {16},
       any,
       false},
      {CaseKind::kSpecialise,
       KernelKind::kStore,
       measured,
       {128},
       {1},
       {16},
       any,
       false},
      {CaseKind::kSpecialise,
       KernelKind::kDecode,
       measured,
       {128},
       {4},
       {16},
       any,
       false},
      {CaseKind::kSpecialise,
       KernelKind::kExtend,
       measured,
       {128},
       {4},
       {16},
       any,
       false},
  };
}

void Expand(const Family& family, std::vector<BenchCase>& cases) {
  for (const absl::string_view format : family.formats) {
    for (const int head_dim : family.head_dims) {
      for (const int group : family.groups) {
        for (const int page_size : family.page_sizes) {
          for (const Shape& shape : family.shapes) {
            BenchCase added;
            added.kind = family.kind;
            added.kernel = family.kernel;
            added.format = *FindFormat(format);
            added.head_dim = head_dim;
            added.group = group;
            added.page_size = page_size;
            added.batch = shape.batch;
            added.q_len = shape.q_len;
            added.kv_len = shape.kv_len;
            added.skew = shape.skew;
            added.by_default = family.by_default;
            added.compute = family.compute;
            cases.push_back(added);
          }
        }
      }
    }
  }
}

bool Matches(const std::string& pattern, const std::string& name) {
  if (name == pattern || absl::StartsWith(name, pattern + "/")) return true;
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

std::string BenchCase::Name() const {
  switch (kind) {
    case CaseKind::kLaunch:
      return absl::StrCat("launch/", KernelName(kernel));
    case CaseKind::kPrepare:
      return absl::StrCat("prepare/", KernelName(kernel), "/", format->name);
    case CaseKind::kFetch:
      return absl::StrCat("fetch/", KernelName(kernel), "/", format->name);
    case CaseKind::kSpecialise:
      return absl::StrCat("specialise/", KernelName(kernel), "/", format->name);
    case CaseKind::kStore:
      return absl::StrCat("store/", format->name, "/d", head_dim, "/page",
                          page_size, "/t", kv_len);
    case CaseKind::kDecode:
    case CaseKind::kExtend:
      break;
  }
  std::string name =
      absl::StrCat(KernelName(kernel), compute == Compute::kFp8 ? "-fp8" : "",
                   "/", format->name, "/d", head_dim, "/g", group, "/page",
                   page_size, "/b", batch);
  if (kind == CaseKind::kExtend) absl::StrAppend(&name, "/q", q_len);
  absl::StrAppend(&name, "/kv", kv_len);
  if (skew > 1) absl::StrAppend(&name, "/skew", skew);
  return name;
}

int BenchCase::num_q_heads() const { return kKvHeads * group; }

std::vector<int> BenchCase::KvLens() const {
  std::vector<int> lens(batch, kv_len);
  lens[0] *= skew;
  return lens;
}

int64_t BenchCase::KvTokens() const {
  return int64_t{kv_len} * (batch - 1 + skew);
}

KernelSpec BenchCase::Spec() const {
  KernelSpec spec;
  spec.kernel = kernel;
  spec.k_format = spec.v_format = format;
  spec.head_dim = spec.v_head_dim = head_dim;
  spec.group = group;
  spec.page_size = page_size;
  spec.compute = compute;
  return spec;
}

std::vector<KernelSpec> BenchCase::Specs() const {
  std::vector<KernelSpec> specs = {Spec()};
  const bool launches = kind != CaseKind::kPrepare && kind != CaseKind::kFetch;
  if (launches && kernel != KernelKind::kStore) {
    specs.push_back(FillSpec(*format, head_dim));
  }
  return specs;
}

KernelSpec FillSpec(const KvFormat& format, int head_dim) {
  KernelSpec spec;
  spec.kernel = KernelKind::kStore;
  spec.k_format = spec.v_format = &format;
  spec.head_dim = spec.v_head_dim = head_dim;
  spec.page_size = kFillPageSize;
  return spec;
}

std::vector<BenchCase> AllCases() {
  std::vector<BenchCase> cases;
  for (const Family& family : Families()) Expand(family, cases);
  return cases;
}

absl::StatusOr<std::vector<BenchCase>> SelectCases(
    const std::vector<std::string>& patterns) {
  const std::vector<BenchCase> all = AllCases();
  std::vector<bool> chosen(all.size(), false);
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!Matches(pattern, all[i].Name())) continue;
      any = chosen[i] = true;
    }
    if (!any) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bench: no case is called '", Shown(pattern),
          "'; names, their beginnings up to a '/' and globs are accepted; "
          "`kvforge bench --list` prints the ",
          all.size(), " names"));
    }
  }
  std::vector<BenchCase> cases;
  for (size_t i = 0; i < all.size(); ++i) {
    if (patterns.empty() ? all[i].by_default : chosen[i]) {
      cases.push_back(all[i]);
    }
  }
  return cases;
}

}  // namespace kvforge::bench

// A small problem of attention over a paged cache as callers of the C interface
// have it: buffers in host memory and structs that point to them.
#ifndef KVFORGE_TESTS_KERNELS_C_API_PROBLEM_H_
#define KVFORGE_TESTS_KERNELS_C_API_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/c_api.h"

#define KVFORGE_EXPECT_C_OK(call) \
  EXPECT_EQ((call), KVFORGE_OK) << kvforge_last_error()

namespace kvforge {

// {.struct_size = sizeof(T)}, all else 0.
template <typename T>
T Sized() {
  T made = {};
  made.struct_size = sizeof(T);
  return made;
}

struct DestroyEngine {
  void operator()(kvforge_engine* engine) { kvforge_engine_destroy(engine); }
};
using CEngine = std::unique_ptr<kvforge_engine, DestroyEngine>;

struct ReleaseKernel {
  void operator()(kvforge_kernel* kernel) { kvforge_kernel_release(kernel); }
};
using CKernel = std::unique_ptr<kvforge_kernel, ReleaseKernel>;

kvforge_engine_options OptionsFromEnvironment();
CEngine Create(const kvforge_engine_options& options);
CKernel Prepared(const CEngine& engine, const std::string& spec);

// An engine that all tests share, with the kernels of earlier runs on disk.
const CEngine& SharedEngine();

// SPECs of CApiProblem's shapes.
std::string StoreSpec(const std::string& format);
std::string GatherSpec(const std::string& format);
std::string AttentionSpec(const std::string& kernel, const std::string& format,
                          const std::string& keys = "");

// A grid of some blocks of one kv head, whose parts meet in the workspace.
struct DecodeLaunch {
  static constexpr int kBlocks = 3;
  explicit DecodeLaunch(const CKernel& decode);

  std::vector<uint8_t> workspace;
  kvforge_decode_launch launch = Sized<kvforge_decode_launch>();
};

// Two sequences of 37 and 20 keys, 2 and 1 query rows, f32
// throughout. What a SPEC does not read is set all the same.
struct CApiProblem {
  static constexpr int kHeadDim = 64, kKvHeads = 2, kGroup = 2, kPage = 16;
  static constexpr int kQHeads = kKvHeads * kGroup;
  static constexpr int kPages = 6, kTokens = 57, kRows = 3, kBatch = 2;

  // `seed`: of every value.
  CApiProblem(std::string format, uint32_t seed);
  CApiProblem(const CApiProblem&) = delete;
  CApiProblem& operator=(const CApiProblem&) = delete;

  std::string format;
  kvforge_cache_geometry geometry;
  std::vector<uint8_t> planes[2][3];  // by KVFORGE_SIDE_, KVFORGE_PLANE_
  std::vector<float> given_scales[2];
  std::vector<float> source[2], q, sinks, slopes;
  std::vector<int64_t> slots;
  std::vector<int32_t> q_indptr, kv_lens, page_table, mask_indptr, selected;
  std::vector<uint8_t> mask;
  // Results.
  std::vector<float> out, lse, gathered[2];

  kvforge_cache_view views[2];
  kvforge_store_args store;
  kvforge_attention_args attention;
  kvforge_gather_args gather;
};

// States of 3 splits, some of them empty, and where they are merged to.
struct CApiMergeProblem {
  static constexpr int kHeadDim = 64, kSplits = 3, kRows = 5, kHeads = 2;

  CApiMergeProblem();
  CApiMergeProblem(const CApiMergeProblem&) = delete;
  CApiMergeProblem& operator=(const CApiMergeProblem&) = delete;

  std::vector<float> partial_out, partial_lse, out, lse;
  kvforge_merge_args args;
};

}  // namespace kvforge

#endif  // KVFORGE_TESTS_KERNELS_C_API_PROBLEM_H_

#include "tests/kernels/c_api_problem.h"

#include <cstring>
#include <limits>
#include <random>

namespace kvforge {
namespace {

std::vector<float> Random(std::mt19937& random, size_t count) {
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> values(count);
  for (float& v : values) v = value(random);
  return values;
}

}  // namespace

kvforge_engine_options OptionsFromEnvironment() {
  auto options = Sized<kvforge_engine_options>();
  KVFORGE_EXPECT_C_OK(kvforge_engine_options_from_environment(&options));
  return options;
}

CEngine Create(const kvforge_engine_options& options) {
  kvforge_engine* engine = nullptr;
  KVFORGE_EXPECT_C_OK(kvforge_engine_create(&options, &engine));
  return CEngine(engine);
}

CKernel Prepared(const CEngine& engine, const std::string& spec) {
  kvforge_kernel* kernel = nullptr;
  KVFORGE_EXPECT_C_OK(kvforge_prepare(engine.get(), spec.c_str(), &kernel));
  return CKernel(kernel);
}

const CEngine& SharedEngine() {
  static const CEngine engine = Create(OptionsFromEnvironment());
  return engine;
}

std::string StoreSpec(const std::string& format) {
  return "store/" + format + "/d64/g1/page16/f32";
}

std::string GatherSpec(const std::string& format) {
  return "gather/" + format + "/d64/g1/page16/f32";
}

std::string AttentionSpec(const std::string& kernel, const std::string& format,
                          const std::string& keys) {
  return kernel + "/" + format + "/d64/g2/page16/f32" + keys;
}

DecodeLaunch::DecodeLaunch(const CKernel& decode) {
  launch.grid = {kBlocks, 1};
  int64_t bytes = 0;
  KVFORGE_EXPECT_C_OK(
      kvforge_decode_workspace_bytes(decode.get(), &launch.grid, &bytes));
  EXPECT_GT(bytes, 0);
  workspace.assign(bytes, 0);
  launch.workspace = workspace.data();
  launch.workspace_bytes = bytes;
}

CApiProblem::CApiProblem(std::string the_format, uint32_t seed)
    : format(std::move(the_format)),
      geometry(Sized<kvforge_cache_geometry>()),
      store(Sized<kvforge_store_args>()),
      attention(Sized<kvforge_attention_args>()),
      gather(Sized<kvforge_gather_args>()) {
  std::mt19937 random(seed);
  geometry.k_format = format.c_str();
  geometry.head_dim = kHeadDim;
  geometry.num_kv_heads = kKvHeads;
  geometry.page_size = kPage;
  for (int side : {KVFORGE_SIDE_K, KVFORGE_SIDE_V}) {
    void* buffers[3];
    for (int plane = 0; plane < 3; ++plane) {
      int64_t bytes = 0;
      EXPECT_EQ(kvforge_cache_plane_buffer_bytes(&geometry, side, plane, kPages,
                                                 &bytes),
                KVFORGE_OK)
          << kvforge_last_error();
      planes[side][plane].assign(bytes, 0);
      buffers[plane] = bytes == 0 ? nullptr : planes[side][plane].data();
    }
    views[side] = Sized<kvforge_cache_view>();
    EXPECT_EQ(kvforge_cache_make_view(&geometry, side, buffers[0], buffers[1],
                                      buffers[2], &views[side]),
              KVFORGE_OK)
        << kvforge_last_error();
    // One a kv head and channel: enough for every format.
    given_scales[side].resize(kKvHeads * kHeadDim);
    for (float& scale : given_scales[side]) {
      scale = 0.01f + 0.001f * static_cast<float>(random() % 8);
    }
    if (format == "e4m3_tensor") {
      views[side].scale = given_scales[side][0];
    } else {
      views[side].scale_ptr = given_scales[side].data();
    }
    source[side] = Random(random, kTokens * kKvHeads * kHeadDim);
    gathered[side].assign(source[side].size(), -1);
  }
  // Sequence 0 on pages 4, 1, 2, sequence 1 on 5, 0.
  page_table = {4, 1, 2, 5, 0, 0};
  kv_lens = {37, 20};
  q_indptr = {0, 2, 3};
  for (int b = 0; b < kBatch; ++b) {
    for (int t = 0; t < kv_lens[b]; ++t) {
      slots.push_back(int64_t{page_table[b * 3 + t / kPage]} * kPage +
                      t % kPage);
    }
  }
  slots[7] = -1;  // skipped
  q = Random(random, kRows * kQHeads * kHeadDim);
  sinks = Random(random, kQHeads);
  slopes = Random(random, kQHeads);
  mask.resize(64);
  for (uint8_t& byte : mask) byte = static_cast<uint8_t>(random());
  mask_indptr = {0, 32};
  selected = {2, 0, 1, -1, 0, 1, -1, 0};  // [batch, kv heads, 2]
  out.assign(q.size(), -1);
  lse.assign(kRows * kQHeads, -1);

  constexpr int64_t kHeadBytes = kHeadDim * 4;
  store.k_src = {source[0].data(), kKvHeads * kHeadBytes, kHeadBytes};
  store.v_src = {source[1].data(), kKvHeads * kHeadBytes, kHeadBytes};
  store.k = gather.k = attention.k = &views[0];
  store.v = gather.v = attention.v = &views[1];
  store.slots = gather.slots = slots.data();
  store.num_slots = gather.num_slots = kPages * kPage;
  store.num_tokens = gather.num_rows = kTokens;
  store.num_kv_heads = gather.num_kv_heads = kKvHeads;
  gather.k_out = {gathered[0].data(), kKvHeads * kHeadBytes, kHeadBytes};
  gather.v_out = {gathered[1].data(), kKvHeads * kHeadBytes, kHeadBytes};

  attention.q = q.data();
  attention.out = out.data();
  attention.q_token_stride = attention.out_token_stride = kQHeads * kHeadBytes;
  attention.q_head_stride = attention.out_head_stride = kHeadBytes;
  attention.lse = lse.data();
  attention.lse_token_stride = kQHeads;
  attention.q_indptr = q_indptr.data();
  attention.kv_lens = kv_lens.data();
  attention.page_table = page_table.data();
  attention.page_table_stride = 3;
  attention.sinks = sinks.data();
  attention.alibi_slopes = slopes.data();
  attention.custom_mask = mask.data();
  attention.mask_indptr = mask_indptr.data();
  attention.selected = selected.data();
  attention.selected_per_head = 2;
  attention.sm_scale = 0.125f;
  attention.batch = kBatch;
  attention.total_q = kRows;
  attention.num_q_heads = kQHeads;
  attention.num_kv_heads = kKvHeads;
}

CApiMergeProblem::CApiMergeProblem() : args(Sized<kvforge_merge_args>()) {
  std::mt19937 random(3);
  partial_out = Random(random, kSplits * kRows * kHeads * kHeadDim);
  partial_lse = Random(random, kSplits * kRows * kHeads);
  partial_lse[1] = partial_lse[7] = -std::numeric_limits<float>::infinity();
  out.assign(kRows * kHeads * kHeadDim, -1);
  lse.assign(kRows * kHeads, -1);
  args.partial_out = partial_out.data();
  args.partial_lse = partial_lse.data();
  args.out = out.data();
  args.out_row_stride = kHeads * kHeadDim * 4;
  args.out_head_stride = kHeadDim * 4;
  args.lse = lse.data();
  args.lse_row_stride = kHeads;
  args.splits = kSplits;
  args.rows = kRows;
  args.heads = kHeads;
}

}  // namespace kvforge

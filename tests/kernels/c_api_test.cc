// The C interface on the CPU: bit for bit what the C++ one gives, and a status
// with a message for everything that is wrong.
#include "kernels/c_api.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cache_geometry.h"
#include "kernels/decode.h"
#include "kernels/extend.h"
#include "kernels/gather.h"
#include "kernels/merge.h"
#include "kernels/store.h"
#include "tests/kernels/c_api_problem.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 8;

// ---- The same through the C++ interface ----

CacheView View(const CApiProblem& problem, CacheSide side) {
  const KvFormat* format = *FindFormat(problem.format);
  const CacheGeometry geometry = {format,           format,
                                  problem.kHeadDim, problem.kHeadDim,
                                  problem.kKvHeads, problem.kPage};
  const int s = static_cast<int>(side);
  const auto data = [&](int plane) {
    return const_cast<uint8_t*>(problem.planes[s][plane].data());
  };
  CacheView view = MakeCacheView(geometry, side, data(0), data(1), data(2));
  if (problem.format == "e4m3_tensor") {
    view.scale = problem.given_scales[s][0];
  } else {
    view.scale_ptr = problem.given_scales[s].data();
  }
  return view;
}

unsigned char* Bytes(std::vector<float>& values) {
  return reinterpret_cast<unsigned char*>(values.data());
}

void RunStoreInCpp(const PreparedKernel& kernel, CApiProblem& problem) {
  StoreArgs args = {};
  args.k_src = {Bytes(problem.source[0]), 512, 256, 0};
  args.v_src = {Bytes(problem.source[1]), 512, 256, 0};
  args.k = View(problem, CacheSide::kKey);
  args.v = View(problem, CacheSide::kValue);
  args.slots = reinterpret_cast<const long long*>(problem.slots.data());
  args.num_slots = problem.kPages * problem.kPage;
  args.num_tokens = problem.kTokens;
  args.num_kv_heads = problem.kKvHeads;
  EXPECT_TRUE(RunStore(kernel, args, nullptr).ok());
}

void RunGatherInCpp(const PreparedKernel& kernel, CApiProblem& problem) {
  GatherArgs args = {};
  args.k_out = {Bytes(problem.gathered[0]), 512, 256};
  args.v_out = {Bytes(problem.gathered[1]), 512, 256};
  args.k = View(problem, CacheSide::kKey);
  args.v = View(problem, CacheSide::kValue);
  args.slots = reinterpret_cast<const long long*>(problem.slots.data());
  args.num_slots = problem.kPages * problem.kPage;
  args.num_rows = problem.kTokens;
  args.num_kv_heads = problem.kKvHeads;
  EXPECT_TRUE(RunGather(kernel, args, nullptr).ok());
}

AttentionArgs AttentionInCpp(CApiProblem& problem) {
  AttentionArgs args = {};
  args.q = Bytes(problem.q);
  args.out = Bytes(problem.out);
  args.q_token_stride = args.out_token_stride = 1024;
  args.q_head_stride = args.out_head_stride = 256;
  args.lse = problem.lse.data();
  args.lse_token_stride = problem.kQHeads;
  args.q_indptr = problem.q_indptr.data();
  args.kv_lens = problem.kv_lens.data();
  args.page_table = problem.page_table.data();
  args.page_table_stride = 3;
  args.k = View(problem, CacheSide::kKey);
  args.v = View(problem, CacheSide::kValue);
  args.sinks = problem.sinks.data();
  args.alibi_slopes = problem.slopes.data();
  args.custom_mask = problem.mask.data();
  args.mask_indptr = problem.mask_indptr.data();
  args.selected = problem.selected.data();
  args.selected_per_head = 2;
  args.sm_scale = 0.125f;
  args.batch = problem.kBatch;
  args.num_kv_heads = problem.kKvHeads;
  args.total_q = problem.kRows;
  return args;
}

const Engine& CppEngine() {
  static const std::unique_ptr<Engine> engine =
      *Engine::Create(*EngineOptionsFromEnvironment());
  return *engine;
}

std::shared_ptr<const PreparedKernel> PreparedInCpp(const std::string& text) {
  auto kernel = const_cast<Engine&>(CppEngine()).Prepare(*ParseSpec(text));
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return *kernel;
}

void RunDecodeInCpp(const PreparedKernel& kernel, CApiProblem& problem) {
  DecodeParams params;
  params.args = AttentionInCpp(problem);
  params.num_q_heads = problem.kQHeads;
  params.grid = {DecodeLaunch::kBlocks, 1};
  std::vector<uint8_t> workspace(DecodeWorkspaceBytes(kernel, params.grid));
  params.workspace = workspace.data();
  params.workspace_bytes = static_cast<int64_t>(workspace.size());
  const absl::Status status = RunDecode(kernel, params, nullptr);
  EXPECT_TRUE(status.ok()) << status;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- Results ----

class SameAsCpp : public ::testing::TestWithParam<const char*> {};

TEST_P(SameAsCpp, StoreGatherExtendDecode) {
  const std::string format = GetParam();
  CApiProblem c(format, 1), cpp(format, 1);
  const CEngine& engine = SharedEngine();
  KVFORGE_EXPECT_C_OK(kvforge_run_store(
      Prepared(engine, StoreSpec(format)).get(), &c.store, nullptr));
  RunStoreInCpp(*PreparedInCpp(StoreSpec(format)), cpp);
  for (int side = 0; side < 2; ++side) {
    for (int plane = 0; plane < 3; ++plane) {
      EXPECT_EQ(c.planes[side][plane], cpp.planes[side][plane])
          << side << " " << plane;
    }
  }
  EXPECT_NE(c.planes[0][0], std::vector<uint8_t>(c.planes[0][0].size()));

  KVFORGE_EXPECT_C_OK(kvforge_run_gather(
      Prepared(engine, GatherSpec(format)).get(), &c.gather, nullptr));
  RunGatherInCpp(*PreparedInCpp(GatherSpec(format)), cpp);
  EXPECT_TRUE(SameBits(c.gathered[0], cpp.gathered[0]));
  EXPECT_TRUE(SameBits(c.gathered[1], cpp.gathered[1]));
  EXPECT_FALSE(SameBits(c.gathered[0], c.gathered[1]));

  const std::string extend = AttentionSpec("extend", format);
  KVFORGE_EXPECT_C_OK(kvforge_run_extend(Prepared(engine, extend).get(),
                                         &c.attention, nullptr));
  EXPECT_TRUE(RunExtend(*PreparedInCpp(extend),
                        {AttentionInCpp(cpp), cpp.kQHeads}, nullptr)
                  .ok());
  EXPECT_TRUE(SameBits(c.out, cpp.out));
  EXPECT_TRUE(SameBits(c.lse, cpp.lse));

  c.out.assign(c.out.size(), -1);
  cpp.out.assign(c.out.size(), -1);
  const std::string spec = AttentionSpec("decode", format, "/q_max=2");
  const CKernel decode = Prepared(engine, spec);
  DecodeLaunch launch(decode);
  KVFORGE_EXPECT_C_OK(
      kvforge_run_decode(decode.get(), &c.attention, &launch.launch, nullptr));
  RunDecodeInCpp(*PreparedInCpp(spec), cpp);
  EXPECT_TRUE(SameBits(c.out, cpp.out));
  EXPECT_TRUE(SameBits(c.lse, cpp.lse));
  EXPECT_NE(c.out[0], -1);
}

INSTANTIATE_TEST_SUITE_P(Formats, SameAsCpp,
                         ::testing::Values("e4m3_row", "nvfp4_row", "int4_row",
                                           "e4m3_tensor", "e4m3_head",
                                           "e4m3_channel"),
                         [](const auto& info) { return info.param; });

// Each of these is read by a SPEC of its own; a pointer in another's place
// shows.
TEST(CApi, EveryOptionalArgumentReachesTheKernel) {
  for (const char* key :
       {"/sinks=1", "/alibi=1", "/mask=custom", "/sparse=16"}) {
    CApiProblem c("e4m3_row", 2), cpp("e4m3_row", 2), plain("e4m3_row", 2);
    const CEngine& engine = SharedEngine();
    const CKernel store = Prepared(engine, StoreSpec("e4m3_row"));
    for (CApiProblem* problem : {&c, &cpp, &plain}) {
      KVFORGE_EXPECT_C_OK(
          kvforge_run_store(store.get(), &problem->store, nullptr));
    }
    const std::string spec = AttentionSpec("extend", "e4m3_row", key);
    KVFORGE_EXPECT_C_OK(kvforge_run_extend(Prepared(engine, spec).get(),
                                           &c.attention, nullptr));
    EXPECT_TRUE(RunExtend(*PreparedInCpp(spec),
                          {AttentionInCpp(cpp), cpp.kQHeads}, nullptr)
                    .ok());
    EXPECT_TRUE(SameBits(c.out, cpp.out)) << key;
    EXPECT_TRUE(SameBits(c.lse, cpp.lse)) << key;
    KVFORGE_EXPECT_C_OK(kvforge_run_extend(
        Prepared(engine, AttentionSpec("extend", "e4m3_row")).get(),
        &plain.attention, nullptr));
    EXPECT_FALSE(SameBits(c.lse, plain.lse)) << key;
  }
}

TEST(CApi, MergeIsThatOfCpp) {
  CApiMergeProblem c, cpp;
  KVFORGE_EXPECT_C_OK(kvforge_run_merge(
      Prepared(SharedEngine(), "merge/d64/f32").get(), &c.args, nullptr));
  MergeArgs args = {};
  args.partial_out = cpp.partial_out.data();
  args.partial_lse = cpp.partial_lse.data();
  args.out = Bytes(cpp.out);
  args.out_row_stride = 512;
  args.out_head_stride = 256;
  args.lse = cpp.lse.data();
  args.lse_row_stride = 2;
  args.splits = 3;
  args.rows = 5;
  args.heads = 2;
  EXPECT_TRUE(RunMerge(*PreparedInCpp("merge/d64/f32"), args, nullptr).ok());
  EXPECT_TRUE(SameBits(c.out, cpp.out));
  EXPECT_TRUE(SameBits(c.lse, cpp.lse));
  EXPECT_NE(c.out[0], -1);
}

TEST(CApi, GeometryIsThatOfCpp) {
  const KvFormat* k = *FindFormat("nvfp4_row");
  const KvFormat* v = *FindFormat("e4m3_row");
  auto c = Sized<kvforge_cache_geometry>();
  c.k_format = "nvfp4_row";
  c.v_format = "e4m3_row";
  c.head_dim = 128;
  c.v_head_dim = 64;
  c.num_kv_heads = 3;
  c.page_size = 32;
  c.page_pad_bytes = 48;
  c.first_page_byte = 4096;
  for (int32_t order : {KVFORGE_ORDER_NHD, KVFORGE_ORDER_HND}) {
    for (int32_t interleaved : {0, 1}) {
      c.order = order;
      c.interleaved = interleaved;
      const CacheGeometry cpp = {k,
                                 v,
                                 128,
                                 64,
                                 3,
                                 32,
                                 static_cast<SlotOrder>(order),
                                 interleaved == 1,
                                 48,
                                 4096};
      int64_t got = -1;
      KVFORGE_EXPECT_C_OK(kvforge_cache_bytes_per_token(&c, &got));
      EXPECT_EQ(got, CacheBytesPerToken(cpp));
      KVFORGE_EXPECT_C_OK(kvforge_cache_bytes_per_page(&c, &got));
      EXPECT_EQ(got, CacheBytesPerPage(cpp));
      KVFORGE_EXPECT_C_OK(kvforge_cache_pages_that_fit(&c, 1 << 20, &got));
      EXPECT_EQ(got, PagesThatFit(cpp, 1 << 20));
      for (int side = 0; side < 2; ++side) {
        for (int kind = 0; kind < 3; ++kind) {
          const Plane expected = PlaneOf(cpp, static_cast<CacheSide>(side),
                                         static_cast<PlaneKind>(kind));
          kvforge_plane plane;
          KVFORGE_EXPECT_C_OK(kvforge_cache_plane(&c, side, kind, &plane));
          EXPECT_EQ(plane.offset, expected.offset);
          EXPECT_EQ(plane.page_stride, expected.page_stride);
          EXPECT_EQ(plane.slot_stride, expected.slot_stride);
          EXPECT_EQ(plane.head_stride, expected.head_stride);
          EXPECT_EQ(plane.row_bytes, expected.row_bytes);
          KVFORGE_EXPECT_C_OK(
              kvforge_cache_plane_buffer_bytes(&c, side, kind, 7, &got));
          EXPECT_EQ(got, PlaneBufferBytes(cpp, static_cast<CacheSide>(side),
                                          static_cast<PlaneKind>(kind), 7));
        }
      }
    }
  }
}

TEST(CApi, GridAndWorkspaceAreThoseOfCpp) {
  const std::string spec = AttentionSpec("decode", "e4m3_row");
  const CKernel decode = Prepared(SharedEngine(), spec);
  const auto cpp = PreparedInCpp(spec);
  for (int batch : {0, 1, 64}) {
    kvforge_decode_grid grid = {};
    KVFORGE_EXPECT_C_OK(kvforge_choose_decode_grid(
        SharedEngine().get(), decode.get(), batch, 8, &grid));
    const DecodeGrid expected = ChooseDecodeGrid(CppEngine(), *cpp, {batch, 8});
    EXPECT_EQ(grid.blocks, expected.blocks);
    EXPECT_EQ(grid.heads_per_block, expected.heads_per_block);
    int64_t bytes = -1;
    KVFORGE_EXPECT_C_OK(
        kvforge_decode_workspace_bytes(decode.get(), &grid, &bytes));
    EXPECT_EQ(bytes, DecodeWorkspaceBytes(*cpp, expected));
  }
}

// ---- Engines and kernels ----

TEST(CApi, Versions) {
  EXPECT_EQ(kvforge_abi_version(), KVFORGE_C_ABI);
  EXPECT_THAT(kvforge_version(), ::testing::MatchesRegex("[0-9.]+"));
  EXPECT_EQ(std::strlen(kvforge_build_id()), 64u);
  EXPECT_STREQ(kvforge_status_name(KVFORGE_NOT_FOUND), "NOT_FOUND");
  for (int code = 0; code <= KVFORGE_UNAUTHENTICATED; ++code) {
    EXPECT_EQ(kvforge_status_name(code),
              absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  EXPECT_STREQ(kvforge_status_name(-1), "no status of kvforge");
}

TEST(CApi, OptionsFromTheEnvironmentAreThoseOfCpp) {
  const kvforge_engine_options c = OptionsFromEnvironment();
  const EngineOptions cpp = *EngineOptionsFromEnvironment();
  EXPECT_EQ(c.struct_size, sizeof(c));
  ASSERT_EQ(c.num_cache_roots, static_cast<int64_t>(cpp.cache_roots.size()));
  for (size_t i = 0; i < cpp.cache_roots.size(); ++i) {
    EXPECT_EQ(c.cache_roots[i].path, cpp.cache_roots[i].path);
    EXPECT_EQ(c.cache_roots[i].trusted, cpp.cache_roots[i].trusted);
  }
  EXPECT_EQ(c.cache_byte_cap, cpp.cache_byte_cap);
  EXPECT_EQ(c.strict, cpp.strict);
}

TEST(CApi, FactsAndStatistics) {
  kvforge_engine_options options = Sized<kvforge_engine_options>();
  options.gpu = "sm_90";
  const CEngine engine = Create(options);
  auto engine_facts = Sized<kvforge_engine_facts>();
  KVFORGE_EXPECT_C_OK(kvforge_engine_get_facts(engine.get(), &engine_facts));
  EXPECT_STREQ(engine_facts.gpu, "sm_90");
  EXPECT_EQ(engine_facts.target, KVFORGE_TARGET_HOST);
  EXPECT_GT(engine_facts.multiprocessors, 0);

  const CKernel first = Prepared(engine, "merge/d64/f32");
  const CKernel second = Prepared(engine, "merge/d64/f32");
  ASSERT_TRUE(first != nullptr && second != nullptr);
  auto statistics = Sized<kvforge_statistics>();
  KVFORGE_EXPECT_C_OK(kvforge_engine_get_statistics(engine.get(), &statistics));
  EXPECT_EQ(statistics.compiles, 1);
  EXPECT_EQ(statistics.memory_hits, 1);
  EXPECT_EQ(statistics.disk_hits, 0);
  EXPECT_GT(statistics.compile_ms, 0);
  EXPECT_GT(statistics.load_ms, 0);

  auto facts = Sized<kvforge_kernel_facts>();
  KVFORGE_EXPECT_C_OK(kvforge_kernel_get_facts(first.get(), &facts));
  EXPECT_STREQ(facts.spec, "merge/d64/f32");
  EXPECT_STREQ(facts.arch, "host-sm_90");
  EXPECT_THAT(facts.tile, HasSubstr("/"));
  EXPECT_EQ(std::strlen(facts.key_digest), 64u);
  EXPECT_GT(facts.block_threads, 0);
  EXPECT_NE(std::string(facts.compiler), "");
}

// A key out of order and one at its default.
TEST(CApi, FactsHaveTheCanonicalSpec) {
  const CKernel kernel = Prepared(
      SharedEngine(), "extend/e4m3_row/d64/g2/page16/f32/sinks=1/dv=64");
  auto facts = Sized<kvforge_kernel_facts>();
  KVFORGE_EXPECT_C_OK(kvforge_kernel_get_facts(kernel.get(), &facts));
  EXPECT_STREQ(facts.spec, "extend/e4m3_row/d64/g2/page16/f32/sinks=1");
}

TEST(CApi, KernelsOutliveTheirEngine) {
  CEngine engine = Create(OptionsFromEnvironment());
  const CKernel kernel = Prepared(engine, "merge/d64/f32");
  engine.reset();
  CApiMergeProblem problem;
  KVFORGE_EXPECT_C_OK(kvforge_run_merge(kernel.get(), &problem.args, nullptr));
  EXPECT_NE(problem.out[0], -1);
}

TEST(CApi, NullHandlesAreNothingToDestroy) {
  kvforge_engine_destroy(nullptr);
  kvforge_kernel_release(nullptr);
}

TEST(CApi, ScoreFunctionsAreCompiledIn) {
  std::ifstream file(KVFORGE_RELATIVE_BIAS);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  char digest[KVFORGE_SCORE_DIGEST_BYTES] = "";
  KVFORGE_EXPECT_C_OK(kvforge_engine_add_score_function(
      SharedEngine().get(), text.data(), text.size(), digest));
  EXPECT_STREQ(digest, "479c88ba3c54e9a26373095a00c4b6fe");
  EXPECT_NE(
      Prepared(SharedEngine(), AttentionSpec("extend", "e4m3_row",
                                             std::string("/score=") + digest)),
      nullptr);
}

// A cache root that is a file takes no kernels: the log says so, the caller
// has one all the same.
TEST(CApi, LogLinesReachTheCallback) {
  const std::string path = ::testing::TempDir() + "kvforge-c-api-no-folder";
  std::ofstream(path) << "no folder";
  const kvforge_cache_root root = {path.c_str(), 0};
  std::string lines;
  kvforge_engine_options options = Sized<kvforge_engine_options>();
  options.cache_roots = &root;
  options.num_cache_roots = 1;
  options.log = [](void* user, const char* line) {
    *static_cast<std::string*>(user) += line;
    throw 1;  // must not leave the callback
  };
  options.log_user = &lines;
  const CEngine engine = Create(options);
  EXPECT_NE(Prepared(engine, "merge/d64/f32"), nullptr);
  EXPECT_THAT(lines, HasSubstr("merge/d64/f32"));
  EXPECT_THAT(lines, HasSubstr(path));
  std::filesystem::remove(path);
}

// ---- Extend on images ----

TEST(CApi, ExtendOnImagesGivesWhatExtendGives) {
  auto options = OptionsFromEnvironment();
  options.gpu = "sm_90";
  const CEngine engine = Create(options);
  const std::string spec = AttentionSpec("extend", "e4m3_row");
  kvforge_kernel* made = nullptr;
  KVFORGE_EXPECT_C_OK(
      kvforge_prepare_extend_on_images(engine.get(), spec.c_str(), &made));
  const CKernel images(made);
  auto facts = Sized<kvforge_kernel_facts>();
  KVFORGE_EXPECT_C_OK(kvforge_kernel_get_facts(images.get(), &facts));
  EXPECT_THAT(facts.tile, HasSubstr("/images"));

  CApiProblem problem("e4m3_row", 7);
  const CKernel store = Prepared(engine, StoreSpec("e4m3_row"));
  KVFORGE_EXPECT_C_OK(kvforge_run_store(store.get(), &problem.store, nullptr));
  // Without a workspace nothing runs.
  EXPECT_EQ(kvforge_run_extend(images.get(), &problem.attention, nullptr),
            KVFORGE_INVALID_ARGUMENT);
  int64_t bytes = 0;
  auto sizes = Sized<kvforge_extend_sizes>();
  sizes.batch = problem.attention.batch;
  sizes.num_kv_heads = problem.attention.num_kv_heads;
  sizes.total_q = problem.attention.total_q;
  sizes.kv_tokens = problem.kPages * problem.kPage;
  KVFORGE_EXPECT_C_OK(
      kvforge_extend_workspace_bytes(images.get(), &sizes, &bytes));
  std::vector<char> memory(bytes + 128);
  problem.attention.workspace =
      memory.data() + (128 - reinterpret_cast<uintptr_t>(memory.data()) % 128);
  problem.attention.workspace_bytes = bytes;
  KVFORGE_EXPECT_C_OK(
      kvforge_run_extend(images.get(), &problem.attention, nullptr));
  const std::vector<float> on_images = problem.out;
  const CKernel extend = Prepared(engine, spec);
  KVFORGE_EXPECT_C_OK(
      kvforge_run_extend(extend.get(), &problem.attention, nullptr));
  for (size_t i = 0; i < on_images.size(); ++i) {
    ASSERT_NEAR(on_images[i], problem.out[i], 2e-3) << i;
  }
  KVFORGE_EXPECT_C_OK(
      kvforge_extend_workspace_bytes(extend.get(), &sizes, &bytes));
  EXPECT_EQ(bytes, 0);
  // Several passes: as many bytes for any number of tokens.
  sizes.kv_tokens = 1 << 20;
  sizes.kv_tokens_per_pass = 1;
  KVFORGE_EXPECT_C_OK(
      kvforge_extend_workspace_bytes(images.get(), &sizes, &bytes));
  const int64_t for_a_million = bytes;
  sizes.kv_tokens = 1 << 30;
  KVFORGE_EXPECT_C_OK(
      kvforge_extend_workspace_bytes(images.get(), &sizes, &bytes));
  EXPECT_EQ(bytes, for_a_million);
  memory.resize(bytes + 128);
  problem.attention.workspace =
      memory.data() + (128 - reinterpret_cast<uintptr_t>(memory.data()) % 128);
  problem.attention.workspace_bytes = bytes;
  problem.attention.kv_tokens = problem.kPages * problem.kPage;
  problem.out.assign(problem.out.size(), -1);
  KVFORGE_EXPECT_C_OK(
      kvforge_run_extend(images.get(), &problem.attention, nullptr));
  for (size_t i = 0; i < on_images.size(); ++i) {
    ASSERT_NEAR(on_images[i], problem.out[i], 2e-3) << i;
  }
  // Extend is told of them.
  problem.attention.kv_tokens = -1;
  EXPECT_EQ(kvforge_run_extend(images.get(), &problem.attention, nullptr),
            KVFORGE_INVALID_ARGUMENT);
  EXPECT_THAT(kvforge_last_error(), HasSubstr("kv_tokens = -1; 0 to"));
  int32_t chosen = -1;
  KVFORGE_EXPECT_C_OK(kvforge_choose_extend(engine.get(), spec.c_str(), &sizes,
                                            0, &chosen, &bytes));
  EXPECT_EQ(chosen, 0);
  EXPECT_EQ(bytes, 0);
  sizes.total_q = 1024 * sizes.batch;
  KVFORGE_EXPECT_C_OK(kvforge_choose_extend(engine.get(), spec.c_str(), &sizes,
                                            INT64_MAX, &chosen, &bytes));
  EXPECT_EQ(chosen, 1);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(kvforge_choose_extend(engine.get(), "merge/d64/f32", &sizes, 0,
                                  &chosen, &bytes),
            KVFORGE_INVALID_ARGUMENT);
  EXPECT_THAT(kvforge_last_error(), HasSubstr("extend is supported"));
  sizes.kv_tokens = -1;
  EXPECT_EQ(kvforge_extend_workspace_bytes(images.get(), &sizes, &bytes),
            KVFORGE_INVALID_ARGUMENT);
  EXPECT_THAT(kvforge_last_error(), HasSubstr("kv_tokens = -1"));
}

TEST(CApi, ExtendOnImagesIsRefusedByNameWhereThereIsNone) {
  kvforge_kernel* kernel = nullptr;
  EXPECT_EQ(kvforge_prepare_extend_on_images(
                SharedEngine().get(),
                AttentionSpec("extend", "e4m3_row").c_str(), &kernel),
            KVFORGE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(kernel, nullptr);
  EXPECT_THAT(kvforge_last_error(), HasSubstr("needs products of warpgroups"));
  int64_t bytes = 0;
  const auto sizes = Sized<kvforge_extend_sizes>();
  EXPECT_EQ(kvforge_extend_workspace_bytes(nullptr, &sizes, &bytes),
            KVFORGE_INVALID_ARGUMENT);
}

// ---- Threads ----

TEST(CApi, ThreadsPrepareAndRunOnOneEngine) {
  const CEngine engine = Create(Sized<kvforge_engine_options>());
  const char* formats[] = {"e4m3_row", "bf16"};
  std::vector<float> expected[2];
  for (int i = 0; i < 2; ++i) {
    CApiProblem problem(formats[i], 7);
    KVFORGE_EXPECT_C_OK(
        kvforge_run_store(Prepared(SharedEngine(), StoreSpec(formats[i])).get(),
                          &problem.store, nullptr));
    KVFORGE_EXPECT_C_OK(kvforge_run_extend(
        Prepared(SharedEngine(), AttentionSpec("extend", formats[i])).get(),
        &problem.attention, nullptr));
    expected[i] = problem.out;
  }
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const int i = thread % 2;
      CApiProblem problem(formats[i], 7);
      const CKernel store = Prepared(engine, StoreSpec(formats[i]));
      const CKernel extend =
          Prepared(engine, AttentionSpec("extend", formats[i]));
      const CKernel merge = Prepared(engine, "merge/d64/f32");
      for (int round = 0; round < 3; ++round) {
        KVFORGE_EXPECT_C_OK(
            kvforge_run_store(store.get(), &problem.store, nullptr));
        KVFORGE_EXPECT_C_OK(
            kvforge_run_extend(extend.get(), &problem.attention, nullptr));
        EXPECT_TRUE(SameBits(problem.out, expected[i])) << "thread " << thread;
      }
      // A message is its own thread's.
      const std::string bad = "thread" + std::to_string(thread);
      EXPECT_EQ(kvforge_check_spec(bad.c_str(), "sm_80"),
                KVFORGE_INVALID_ARGUMENT);
      std::this_thread::yield();
      EXPECT_THAT(kvforge_last_error(), HasSubstr(bad));
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto statistics = Sized<kvforge_statistics>();
  KVFORGE_EXPECT_C_OK(kvforge_engine_get_statistics(engine.get(), &statistics));
  EXPECT_EQ(statistics.compiles, 5);
}

}  // namespace
}  // namespace kvforge

// Whatever is wrong in a call of the C interface is a status with a message
// that says what, and nothing is run.
#include <cstring>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "kernels/c_api.h"
#include "tests/kernels/c_api_problem.h"

namespace kvforge {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

void ExpectError(int status, int expected, const char* message) {
  EXPECT_STREQ(kvforge_status_name(status), kvforge_status_name(expected))
      << kvforge_last_error();
  EXPECT_THAT(kvforge_last_error(), HasSubstr(message));
  // Names of the C++ interface mean nothing to a user of this one.
  EXPECT_THAT(kvforge_last_error(), Not(ContainsRegex("[A-Za-z]::[A-Z]")));
  EXPECT_THAT(kvforge_last_error(), Not(ContainsRegex("[A-Z][a-z]+[A-Z]")));
}

void ExpectInvalid(int status, const char* message) {
  ExpectError(status, KVFORGE_INVALID_ARGUMENT, message);
}

// ---- Structs ----

TEST(CApiErrors, StructSizes) {
  kvforge_engine* engine = nullptr;
  auto options = Sized<kvforge_engine_options>();
  for (size_t size : {size_t{0}, size_t{8}, sizeof(options) - 1, size_t{4097},
                      std::numeric_limits<size_t>::max()}) {
    options.struct_size = size;
    ExpectInvalid(kvforge_engine_create(&options, &engine),
                  "kvforge_engine_create: options.struct_size = ");
    ExpectInvalid(kvforge_engine_options_from_environment(&options),
                  "options.struct_size = ");
  }
  auto facts = Sized<kvforge_engine_facts>();
  for (size_t size : {size_t{0}, sizeof(facts) - 1, size_t{4097}}) {
    facts.struct_size = size;
    ExpectInvalid(kvforge_engine_get_facts(SharedEngine().get(), &facts),
                  "facts.struct_size = ");
  }
  ExpectInvalid(kvforge_engine_create(nullptr, &engine), "options is null");
  ExpectInvalid(kvforge_engine_options_from_environment(nullptr),
                "options is null");
}

// A program that was compiled with a newer header: fields that this library
// does not know must say nothing.
TEST(CApiErrors, NewerStructs) {
  struct Newer {
    kvforge_engine_options known;
    uint64_t later;
  } newer = {};
  newer.known.struct_size = sizeof(newer);
  kvforge_engine* engine = nullptr;
  EXPECT_EQ(kvforge_engine_create(&newer.known, &engine), KVFORGE_OK);
  kvforge_engine_destroy(engine);
  newer.later = 1;
  ExpectInvalid(kvforge_engine_create(&newer.known, &engine),
                "leave newer fields at 0, or install the libkvforge");
  EXPECT_EQ(engine, nullptr);

  struct NewerFacts {
    kvforge_statistics known;
    uint64_t later;
  } facts = {};
  facts.known.struct_size = sizeof(facts);
  facts.later = 17;
  KVFORGE_EXPECT_C_OK(
      kvforge_engine_get_statistics(SharedEngine().get(), &facts.known));
  EXPECT_EQ(facts.later, 0u);
  EXPECT_EQ(facts.known.struct_size, sizeof(facts));
}

// ---- Engines ----

TEST(CApiErrors, Options) {
  struct Case {
    std::function<void(kvforge_engine_options&)> change;
    int status;
    const char* message;
  };
  static const kvforge_cache_root unnamed = {nullptr, 0};
  static const kvforge_cache_root odd_flag = {"/tmp", 2};
  const Case cases[] = {
      {[](auto& o) { o.target = 2; }, KVFORGE_INVALID_ARGUMENT,
       "options.target = 2 is no target"},
      {[](auto& o) { o.target = -1; }, KVFORGE_INVALID_ARGUMENT,
       "options.target = -1"},
      {[](auto& o) { o.gpu = "sm_12"; }, KVFORGE_INVALID_ARGUMENT, "sm_12"},
      {[](auto& o) { o.gpu = ""; }, KVFORGE_INVALID_ARGUMENT, "GPU ''"},
      {[](auto& o) { o.gpu = "sm_75"; }, KVFORGE_UNIMPLEMENTED, "sm_75"},
      {[](auto& o) { o.num_cache_roots = -1; }, KVFORGE_INVALID_ARGUMENT,
       "num_cache_roots = -1"},
      {[](auto& o) { o.num_cache_roots = 1; }, KVFORGE_INVALID_ARGUMENT,
       "num_cache_roots = 1 with options.cache_roots null"},
      {[](auto& o) {
         o.num_cache_roots = 1;
         o.cache_roots = &unnamed;
       },
       KVFORGE_INVALID_ARGUMENT, "options.cache_roots[0] is null"},
      {[](auto& o) {
         o.num_cache_roots = 1;
         o.cache_roots = &odd_flag;
       },
       KVFORGE_INVALID_ARGUMENT, "cache_roots[0].trusted = 2"},
      {[](auto& o) { o.cache_byte_cap = -2; }, KVFORGE_INVALID_ARGUMENT,
       "cache_byte_cap = -2"},
      {[](auto& o) { o.strict = 7; }, KVFORGE_INVALID_ARGUMENT,
       "strict = 7 is no flag"},
      {[](auto& o) { o.recompile = -1; }, KVFORGE_INVALID_ARGUMENT,
       "recompile = -1"},
      {[](auto& o) { o.templates_dir = "/no/such/folder"; },
       KVFORGE_INVALID_ARGUMENT, "/no/such/folder"},
  };
  for (const Case& c : cases) {
    auto options = Sized<kvforge_engine_options>();
    c.change(options);
    kvforge_engine* engine = reinterpret_cast<kvforge_engine*>(1);
    ExpectError(kvforge_engine_create(&options, &engine), c.status, c.message);
    EXPECT_EQ(engine, nullptr);
  }
  const auto options = Sized<kvforge_engine_options>();
  ExpectInvalid(kvforge_engine_create(&options, nullptr), "engine is null");
}

TEST(CApiErrors, NullHandles) {
  auto engine_facts = Sized<kvforge_engine_facts>();
  auto statistics = Sized<kvforge_statistics>();
  auto facts = Sized<kvforge_kernel_facts>();
  char digest[KVFORGE_SCORE_DIGEST_BYTES];
  kvforge_kernel* kernel = reinterpret_cast<kvforge_kernel*>(1);
  kvforge_engine* engine = SharedEngine().get();
  kvforge_decode_grid grid = {1, 1};
  int64_t bytes = 0;
  ExpectInvalid(kvforge_engine_get_facts(nullptr, &engine_facts),
                "engine is null");
  ExpectInvalid(kvforge_engine_get_facts(engine, nullptr), "facts is null");
  ExpectInvalid(kvforge_engine_get_statistics(nullptr, &statistics),
                "engine is null");
  ExpectInvalid(kvforge_engine_get_statistics(engine, nullptr),
                "statistics is null");
  ExpectInvalid(kvforge_engine_add_score_function(nullptr, "", 0, digest),
                "engine is null");
  ExpectInvalid(kvforge_engine_add_score_function(engine, nullptr, 0, digest),
                "text is null");
  ExpectInvalid(kvforge_engine_add_score_function(engine, "x", 1, nullptr),
                "digest is null");
  ExpectInvalid(kvforge_prepare(nullptr, "merge/d64/f32", &kernel),
                "engine is null");
  EXPECT_EQ(kernel, nullptr);
  ExpectInvalid(kvforge_prepare(engine, nullptr, &kernel), "spec is null");
  ExpectInvalid(kvforge_prepare(engine, "merge/d64/f32", nullptr),
                "kernel is null");
  ExpectInvalid(kvforge_kernel_get_facts(nullptr, &facts), "kernel is null");
  ExpectInvalid(kvforge_check_spec(nullptr, "sm_80"), "spec is null");
  ExpectInvalid(kvforge_check_spec("merge/d64/f32", nullptr), "gpu is null");
  ExpectInvalid(kvforge_choose_decode_grid(engine, nullptr, 1, 1, &grid),
                "kernel is null");
  ExpectInvalid(kvforge_decode_workspace_bytes(nullptr, &grid, &bytes),
                "kernel is null");
  const CKernel decode =
      Prepared(SharedEngine(), AttentionSpec("decode", "e4m3_row"));
  ExpectInvalid(kvforge_choose_decode_grid(nullptr, decode.get(), 1, 1, &grid),
                "engine is null");
  ExpectInvalid(kvforge_choose_decode_grid(engine, decode.get(), 1, 1, nullptr),
                "grid is null");
  ExpectInvalid(kvforge_decode_workspace_bytes(decode.get(), nullptr, &bytes),
                "grid is null");
  ExpectInvalid(kvforge_decode_workspace_bytes(decode.get(), &grid, nullptr),
                "bytes is null");
  CApiProblem problem("e4m3_row", 1);
  const auto launch = Sized<kvforge_decode_launch>();
  ExpectInvalid(kvforge_run_store(nullptr, &problem.store, nullptr),
                "kvforge_run_store: kernel is null");
  ExpectInvalid(kvforge_run_gather(nullptr, &problem.gather, nullptr),
                "kernel is null");
  ExpectInvalid(kvforge_run_extend(nullptr, &problem.attention, nullptr),
                "kernel is null");
  ExpectInvalid(
      kvforge_run_decode(nullptr, &problem.attention, &launch, nullptr),
      "kernel is null");
  ExpectInvalid(kvforge_run_merge(nullptr, nullptr, nullptr), "kernel is null");
  ExpectInvalid(kvforge_run_decode(decode.get(), nullptr, &launch, nullptr),
                "args is null");
  ExpectInvalid(
      kvforge_run_decode(decode.get(), &problem.attention, nullptr, nullptr),
      "launch is null");
}

// ---- Kernels ----

TEST(CApiErrors, Specs) {
  struct Case {
    const char* spec;
    const char* gpu;
    int status;
    const char* message;
  };
  const Case cases[] = {
      {"", "sm_80", KVFORGE_INVALID_ARGUMENT, ""},
      {"decode", "sm_80", KVFORGE_INVALID_ARGUMENT, "decode"},
      {"decode/e4m3_row/d128/g4/page16/bf16/window", "sm_80",
       KVFORGE_INVALID_ARGUMENT, "window"},
      {"decode/e4m3_cow/d128/g4/page16/bf16", "sm_80", KVFORGE_INVALID_ARGUMENT,
       "e4m3_cow"},
      {"decode/e4m3_row/d100/g4/page16/bf16", "sm_80", KVFORGE_INVALID_ARGUMENT,
       "100"},
      {"decode/bf16/d128/g4/page16/bf16/compute=fp8", "sm_80",
       KVFORGE_UNIMPLEMENTED, "named but not served"},
      {"decode/e4m3_row/d128/g4/page16/bf16", "sm_12", KVFORGE_INVALID_ARGUMENT,
       "sm_12"},
      {"decode/e4m3_row/d128/g4/page16/bf16", "sm_75", KVFORGE_UNIMPLEMENTED,
       "sm_75"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.spec);
    ExpectError(kvforge_check_spec(c.spec, c.gpu), c.status, c.message);
    if (std::strcmp(c.gpu, "sm_80") != 0) continue;
    kvforge_kernel* kernel = nullptr;
    ExpectError(kvforge_prepare(SharedEngine().get(), c.spec, &kernel),
                c.status, c.message);
    EXPECT_EQ(kernel, nullptr);
  }
  KVFORGE_EXPECT_C_OK(
      kvforge_check_spec("decode/e4m3_row/d128/g4/page16/bf16", "sm_90a"));
}

TEST(CApiErrors, StrictMiss) {
  auto options = Sized<kvforge_engine_options>();
  options.strict = 1;
  const CEngine engine = Create(options);
  kvforge_kernel* kernel = nullptr;
  ExpectError(kvforge_prepare(engine.get(), "merge/d64/f32", &kernel),
              KVFORGE_NOT_FOUND, "kvforge prime merge/d64/f32");
  char digest[KVFORGE_SCORE_DIGEST_BYTES];
  ExpectError(kvforge_engine_add_score_function(engine.get(), "x", 1, digest),
              KVFORGE_FAILED_PRECONDITION, "strict");
}

TEST(CApiErrors, NoCompiler) {
  auto options = Sized<kvforge_engine_options>();
  options.jit_path = "/no/such/libkvforge_jit.so";
  const CEngine engine = Create(options);
  kvforge_kernel* kernel = nullptr;
  ExpectError(kvforge_prepare(engine.get(), "merge/d64/f32", &kernel),
              KVFORGE_UNAVAILABLE, "/no/such/libkvforge_jit.so");
}

TEST(CApiErrors, ScoreFunctionWithoutItsText) {
  kvforge_kernel* kernel = nullptr;
  ExpectError(kvforge_prepare(SharedEngine().get(),
                              "decode/bf16/d64/g4/page16/bf16/"
                              "score=00000000000000000000000000000000",
                              &kernel),
              KVFORGE_NOT_FOUND, "add it to the engine");
}

TEST(CApiErrors, ADumpFolderThatCannotBeMade) {
  auto options = Sized<kvforge_engine_options>();
  options.dump_dir = "/proc/no/such";
  const CEngine engine = Create(options);
  kvforge_kernel* kernel = nullptr;
  ExpectError(kvforge_prepare(engine.get(), "merge/d64/f32", &kernel),
              KVFORGE_FAILED_PRECONDITION,
              "dump folder /proc/no/such: cannot make folder");
}

TEST(CApiErrors, LongTextsAreNotRepeatedWhole) {
  const std::string text(1 << 20, 'x');
  kvforge_kernel* kernel = nullptr;
  for (const std::string& spec :
       {text, "decode/" + text, "decode/bf16/d64/g4/page16/bf16/" + text,
        "decode/bf16/d64/g4/page16/bf16/score=" + text,
        "decode/bf16/d64/g4/page16/bf16/mask=" + text,
        "decode/bf16/" + text + "/g4/page16/bf16"}) {
    ExpectInvalid(kvforge_prepare(SharedEngine().get(), spec.c_str(), &kernel),
                  "... (10");
    EXPECT_THAT(std::strlen(kvforge_last_error()), Lt(2000u));
  }
  ExpectInvalid(kvforge_check_spec("merge/d64/f32", text.c_str()),
                "... (1048576 bytes)");
  EXPECT_THAT(std::strlen(kvforge_last_error()), Lt(2000u));
}

TEST(CApiErrors, ScoreFunctionThatIsNone) {
  char digest[KVFORGE_SCORE_DIGEST_BYTES];
  const char text[] = "no function\0 at all";
  ExpectInvalid(kvforge_engine_add_score_function(SharedEngine().get(), text,
                                                  sizeof(text), digest),
                "score function");
  ExpectInvalid(
      kvforge_engine_add_score_function(SharedEngine().get(), "", 0, digest),
      "score function");
}

// ---- Geometry ----

TEST(CApiErrors, Geometry) {
  struct Case {
    std::function<void(kvforge_cache_geometry&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& g) { g.struct_size = 3; }, "geometry.struct_size = 3"},
      {[](auto& g) { g.k_format = nullptr; }, "geometry.k_format is null"},
      {[](auto& g) { g.k_format = "fp3"; }, "fp3"},
      {[](auto& g) { g.v_format = "fp5"; }, "fp5"},
      {[](auto& g) { g.head_dim = 0; }, "head_dim"},
      {[](auto& g) { g.head_dim = -64; }, "head_dim"},
      {[](auto& g) { g.v_head_dim = 65; }, "65"},
      {[](auto& g) { g.num_kv_heads = 0; }, "num_kv_heads = 0"},
      {[](auto& g) {
         g.num_kv_heads = INT32_MAX;
         g.page_size = 65536;
       },
       "a page of"},
      {[](auto& g) { g.page_size = 65537; }, "page_size = 65537"},
      {[](auto& g) { g.page_size = INT32_MIN; }, "page_size = -2147483648"},
      {[](auto& g) { g.order = 2; }, "geometry.order = 2 is out of range"},
      {[](auto& g) { g.interleaved = -1; }, "geometry.interleaved = -1"},
      {[](auto& g) { g.page_pad_bytes = -1; }, "page_pad_bytes = -1"},
      {[](auto& g) { g.first_page_byte = INT64_MAX; }, "first_page_byte"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    auto geometry = Sized<kvforge_cache_geometry>();
    geometry.k_format = "e4m3_row";
    geometry.head_dim = 64;
    geometry.num_kv_heads = 2;
    geometry.page_size = 16;
    c.change(geometry);
    int64_t value = 0;
    kvforge_plane plane;
    auto view = Sized<kvforge_cache_view>();
    char buffer[1];
    ExpectInvalid(kvforge_cache_bytes_per_token(&geometry, &value), c.message);
    ExpectInvalid(kvforge_cache_bytes_per_page(&geometry, &value), c.message);
    ExpectInvalid(kvforge_cache_pages_that_fit(&geometry, 1, &value),
                  c.message);
    ExpectInvalid(kvforge_cache_plane(&geometry, 0, 0, &plane), c.message);
    ExpectInvalid(kvforge_cache_plane_buffer_bytes(&geometry, 0, 0, 1, &value),
                  c.message);
    ExpectInvalid(
        kvforge_cache_make_view(&geometry, 0, buffer, buffer, buffer, &view),
        c.message);
  }
}

TEST(CApiErrors, GeometryCalls) {
  CApiProblem problem("e4m3_row", 1);
  const kvforge_cache_geometry* geometry = &problem.geometry;
  int64_t value = 0;
  kvforge_plane plane;
  auto view = Sized<kvforge_cache_view>();
  char buffer[1];
  ExpectInvalid(kvforge_cache_bytes_per_token(nullptr, &value),
                "geometry is null");
  ExpectInvalid(kvforge_cache_bytes_per_token(geometry, nullptr),
                "bytes is null");
  ExpectInvalid(kvforge_cache_pages_that_fit(geometry, -1, &value),
                "pool_bytes = -1");
  ExpectInvalid(kvforge_cache_plane(geometry, 2, 0, &plane), "side = 2");
  ExpectInvalid(kvforge_cache_plane(geometry, 0, 3, &plane), "plane_kind = 3");
  ExpectInvalid(kvforge_cache_plane(geometry, 0, 0, nullptr), "plane is null");
  ExpectInvalid(kvforge_cache_plane_buffer_bytes(geometry, 0, 0, -1, &value),
                "num_pages = -1");
  ExpectError(
      kvforge_cache_plane_buffer_bytes(geometry, 0, 0, INT64_MAX, &value),
      KVFORGE_OUT_OF_RANGE, "more than 64 bits hold");
  // A plane that the format does not have takes no bytes, however many pages.
  KVFORGE_EXPECT_C_OK(kvforge_cache_plane_buffer_bytes(
      geometry, 0, KVFORGE_PLANE_BLOCK_SCALES, INT64_MAX, &value));
  EXPECT_EQ(value, 0);
  ExpectInvalid(
      kvforge_cache_make_view(geometry, 0, nullptr, buffer, nullptr, &view),
      "codes is null");
  ExpectInvalid(
      kvforge_cache_make_view(geometry, 0, buffer, nullptr, nullptr, &view),
      "row_scales is null; it must be a buffer, since e4m3_row");
  ExpectInvalid(
      kvforge_cache_make_view(geometry, 0, buffer, buffer, nullptr, nullptr),
      "view is null");
}

// ---- Launches ----

TEST(CApiErrors, KernelsOfAnotherKind) {
  CApiProblem problem("e4m3_row", 1);
  const CKernel merge = Prepared(SharedEngine(), "merge/d64/f32");
  const auto launch = Sized<kvforge_decode_launch>();
  CApiMergeProblem merged;
  kvforge_decode_grid grid = {1, 1};
  int64_t bytes = 0;
  ExpectInvalid(kvforge_run_store(merge.get(), &problem.store, nullptr),
                "the kernel is merge/d64/f32");
  ExpectInvalid(kvforge_run_gather(merge.get(), &problem.gather, nullptr),
                "the kernel is merge/d64/f32");
  ExpectInvalid(kvforge_run_extend(merge.get(), &problem.attention, nullptr),
                "the kernel is merge/d64/f32");
  ExpectInvalid(
      kvforge_run_decode(merge.get(), &problem.attention, &launch, nullptr),
      "the kernel is merge/d64/f32");
  ExpectInvalid(
      kvforge_run_merge(Prepared(SharedEngine(), StoreSpec("e4m3_row")).get(),
                        &merged.args, nullptr),
      "the kernel is store/");
  ExpectInvalid(kvforge_choose_decode_grid(SharedEngine().get(), merge.get(), 1,
                                           1, &grid),
                "the kernel is merge/d64/f32");
  ExpectInvalid(kvforge_decode_workspace_bytes(merge.get(), &grid, &bytes),
                "the kernel is merge/d64/f32");
}

TEST(CApiErrors, StoreArguments) {
  struct Case {
    std::function<void(CApiProblem&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& p) { p.store.struct_size = 4; }, "args.struct_size = 4"},
      {[](auto& p) { p.store.k_src.base = nullptr; }, "k_src.base is null"},
      {[](auto& p) { p.store.v_src.token_stride = 3; }, "v_src"},
      {[](auto& p) { p.store.v_src.head_stride = INT64_MAX; }, "v_src"},
      {[](auto& p) { p.store.k_src.head_stride = INT64_MIN; }, "k_src"},
      {[](auto& p) { p.store.k = nullptr; }, "args.k is null"},
      {[](auto& p) { p.store.v = nullptr; }, "args.v is null"},
      {[](auto& p) { p.views[1].struct_size = 9; }, "args.v.struct_size = 9"},
      {[](auto& p) { p.views[0].reserved = 1; }, "args.k.reserved = 1"},
      {[](auto& p) { p.views[0].codes.base = nullptr; },
       "k.codes.base is null"},
      {[](auto& p) { p.views[0].codes.page_stride = 17; }, "k.codes"},
      {[](auto& p) { p.views[1].row_scales.base = nullptr; },
       "v.row_scale.base is null"},
      {[](auto& p) { p.views[1].row_scales.slot_stride = INT64_MIN; },
       "v.row_scale"},
      {[](auto& p) { p.store.slots = nullptr; }, "slots is null"},
      {[](auto& p) { p.store.num_slots = -1; }, "num_slots = -1"},
      {[](auto& p) { p.store.num_tokens = INT32_MIN; }, "num_tokens"},
      {[](auto& p) { p.store.num_kv_heads = -2; }, "num_kv_heads = -2"},
      {[](auto& p) { p.store.num_kv_heads = INT32_MAX; }, "overlap"},
  };
  const CKernel store = Prepared(SharedEngine(), StoreSpec("e4m3_row"));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    CApiProblem problem("e4m3_row", 1);
    c.change(problem);
    ExpectInvalid(kvforge_run_store(store.get(), &problem.store, nullptr),
                  c.message);
    EXPECT_EQ(problem.planes[0][0],
              std::vector<uint8_t>(problem.planes[0][0].size()));
  }
}

TEST(CApiErrors, AttentionArguments) {
  struct Case {
    std::function<void(kvforge_attention_args&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& a) { a.struct_size = 0; }, "args.struct_size = 0"},
      {[](auto& a) { a.q = nullptr; }, "q is null"},
      {[](auto& a) { a.q = static_cast<const char*>(a.q) + 4; },
       "q is aligned"},
      {[](auto& a) { a.q_token_stride = 4; }, "q"},
      {[](auto& a) { a.q_head_stride = INT64_MAX; }, "q"},
      {[](auto& a) { a.out = nullptr; }, "out is null"},
      {[](auto& a) { a.out_token_stride = 0; }, "rows of out overlap"},
      {[](auto& a) { a.out_head_stride = INT64_MIN; }, "out"},
      {[](auto& a) { a.lse_token_stride = 0; }, "rows of lse overlap"},
      {[](auto& a) { a.lse_token_stride = INT64_MAX; }, "lse"},
      {[](auto& a) { a.q_indptr = nullptr; }, "q_indptr is null"},
      {[](auto& a) { a.kv_lens = nullptr; }, "kv_lens is null"},
      {[](auto& a) { a.page_table = nullptr; }, "page_table is null"},
      {[](auto& a) { a.page_table_stride = -1; }, "page_table_stride = -1"},
      {[](auto& a) { a.k = nullptr; }, "args.k is null"},
      {[](auto& a) { a.v = nullptr; }, "args.v is null"},
      {[](auto& a) { a.sinks = nullptr; }, "sinks is null"},
      {[](auto& a) { a.alibi_slopes = nullptr; }, "alibi_slopes is null"},
      {[](auto& a) { a.custom_mask = nullptr; }, "custom_mask is null"},
      {[](auto& a) { a.mask_indptr = nullptr; }, "mask_indptr is null"},
      {[](auto& a) { a.selected = nullptr; }, "selected is null"},
      {[](auto& a) { a.selected_per_head = INT32_MAX; }, "selected_per_head"},
      {[](auto& a) { a.sm_scale = std::numeric_limits<float>::infinity(); },
       "sm_scale = inf"},
      {[](auto& a) { a.batch = -1; }, "batch = -1"},
      {[](auto& a) { a.total_q = INT32_MAX; }, "total_q = 2147483647"},
      {[](auto& a) { a.num_q_heads = 3; }, "num_q_heads = 3"},
      {[](auto& a) { a.num_q_heads = INT32_MIN; }, "num_q_heads"},
      {[](auto& a) { a.num_kv_heads = 0; }, "num_kv_heads = 0"},
      {[](auto& a) { a.num_kv_heads = 4; }, "num_q_heads / num_kv_heads = 1"},
  };
  const std::string keys = "/alibi=1/mask=custom/sinks=1/sparse=16";
  const CKernel extend =
      Prepared(SharedEngine(), AttentionSpec("extend", "e4m3_row", keys));
  const CKernel decode = Prepared(
      SharedEngine(), AttentionSpec("decode", "e4m3_row", "/q_max=2" + keys));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    CApiProblem problem("e4m3_row", 1);
    c.change(problem.attention);
    ExpectInvalid(kvforge_run_extend(extend.get(), &problem.attention, nullptr),
                  c.message);
    DecodeLaunch launch(decode);
    ExpectInvalid(kvforge_run_decode(decode.get(), &problem.attention,
                                     &launch.launch, nullptr),
                  c.message);
    EXPECT_EQ(problem.out, std::vector<float>(problem.out.size(), -1));
  }
}

TEST(CApiErrors, DecodeLaunches) {
  struct Case {
    std::function<void(kvforge_decode_launch&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& l) { l.struct_size = 1; }, "launch.struct_size = 1"},
      {[](auto& l) { l.grid.blocks = 0; }, "blocks = 0"},
      {[](auto& l) { l.grid.blocks = KVFORGE_MAX_DECODE_BLOCKS + 1; },
       "blocks = 65537"},
      {[](auto& l) { l.grid.heads_per_block = 3; }, "heads_per_block = 3"},
      {[](auto& l) { l.grid.heads_per_block = INT32_MIN; }, "heads_per_block"},
      {[](auto& l) { l.workspace = nullptr; }, "workspace is null"},
      {[](auto& l) { l.workspace = static_cast<char*>(l.workspace) + 8; },
       "workspace is aligned"},
      {[](auto& l) { --l.workspace_bytes; }, "the workspace has "},
      {[](auto& l) { l.workspace_bytes = INT64_MIN; }, "the workspace has -"},
  };
  const CKernel decode =
      Prepared(SharedEngine(), AttentionSpec("decode", "e4m3_row", "/q_max=2"));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    CApiProblem problem("e4m3_row", 1);
    DecodeLaunch launch(decode);
    c.change(launch.launch);
    ExpectInvalid(kvforge_run_decode(decode.get(), &problem.attention,
                                     &launch.launch, nullptr),
                  c.message);
  }
  int64_t bytes = 0;
  for (const kvforge_decode_grid& grid :
       {kvforge_decode_grid{0, 1}, kvforge_decode_grid{INT32_MAX, 1},
        kvforge_decode_grid{2, 0}, kvforge_decode_grid{2, INT32_MAX}}) {
    ExpectInvalid(kvforge_decode_workspace_bytes(decode.get(), &grid, &bytes),
                  "take the grid from kvforge_choose_decode_grid");
  }
  kvforge_decode_grid grid = {};
  for (const auto& [batch, heads] : {std::pair{-1, 1}, {1, 0}, {1, -4}}) {
    ExpectInvalid(kvforge_choose_decode_grid(SharedEngine().get(), decode.get(),
                                             batch, heads, &grid),
                  "batch = ");
  }
  KVFORGE_EXPECT_C_OK(kvforge_choose_decode_grid(
      SharedEngine().get(), decode.get(), INT32_MAX, INT32_MAX, &grid));
}

TEST(CApiErrors, MergeAndGatherArguments) {
  struct MergeCase {
    std::function<void(kvforge_merge_args&)> change;
    const char* message;
  };
  const MergeCase merge_cases[] = {
      {[](auto& a) { a.struct_size = 2; }, "args.struct_size = 2"},
      {[](auto& a) { a.reserved = 4; }, "args.reserved = 4"},
      {[](auto& a) { a.partial_out = nullptr; }, "partial_out is null"},
      {[](auto& a) { a.partial_lse = nullptr; }, "partial_lse is null"},
      {[](auto& a) { a.out = nullptr; }, "out is null"},
      {[](auto& a) { a.out_row_stride = 8; }, "out"},
      {[](auto& a) { a.out_head_stride = INT64_MIN; }, "out"},
      {[](auto& a) { a.lse_row_stride = INT64_MIN; }, "lse"},
      {[](auto& a) { a.splits = 0; }, "splits = 0"},
      {[](auto& a) { a.rows = -1; }, "rows = -1"},
      {[](auto& a) { a.heads = INT32_MIN; }, "heads"},
  };
  const CKernel merge = Prepared(SharedEngine(), "merge/d64/f32");
  for (const MergeCase& c : merge_cases) {
    SCOPED_TRACE(c.message);
    CApiMergeProblem problem;
    c.change(problem.args);
    ExpectInvalid(kvforge_run_merge(merge.get(), &problem.args, nullptr),
                  c.message);
    EXPECT_EQ(problem.out, std::vector<float>(problem.out.size(), -1));
  }
  struct GatherCase {
    std::function<void(kvforge_gather_args&)> change;
    const char* message;
  };
  const GatherCase gather_cases[] = {
      {[](auto& a) { a.struct_size = 2; }, "args.struct_size = 2"},
      {[](auto& a) { a.k_out.base = nullptr; }, "k_out is null"},
      {[](auto& a) { a.v_out.token_stride = 16; }, "v_out"},
      {[](auto& a) { a.v_out.head_stride = INT64_MIN; }, "v_out"},
      {[](auto& a) { a.k = nullptr; }, "args.k is null"},
      {[](auto& a) { a.slots = nullptr; }, "slots is null"},
      {[](auto& a) { a.num_slots = INT64_MIN; }, "num_slots"},
      {[](auto& a) { a.num_rows = -5; }, "num_rows = -5"},
      {[](auto& a) { a.num_kv_heads = INT32_MIN; }, "num_kv_heads"},
  };
  const CKernel gather = Prepared(SharedEngine(), GatherSpec("e4m3_row"));
  for (const GatherCase& c : gather_cases) {
    SCOPED_TRACE(c.message);
    CApiProblem problem("e4m3_row", 1);
    c.change(problem.gather);
    ExpectInvalid(kvforge_run_gather(gather.get(), &problem.gather, nullptr),
                  c.message);
    EXPECT_EQ(problem.gathered[0],
              std::vector<float>(problem.gathered[0].size(), -1));
  }
}

TEST(CApiErrors, CudaWhereThereIsNone) {
  auto options = Sized<kvforge_engine_options>();
  options.target = KVFORGE_TARGET_CUDA;
  options.device = -1;
  kvforge_engine* engine = nullptr;
  EXPECT_NE(kvforge_engine_create(&options, &engine), KVFORGE_OK);
  EXPECT_EQ(engine, nullptr);
  EXPECT_STRNE(kvforge_last_error(), "");
}

}  // namespace
}  // namespace kvforge

/* kvforge from C: stores ten tokens of one sequence into an e4m3 cache and
 * attends to them with one query token, by decode and by extend. Runs on the
 * CPU; with KVFORGE_TARGET_CUDA and device memory it runs on a GPU unchanged.
 */
#include <math.h>
#include <stdalign.h>
#include <stdio.h>

#include "kernels/c_api.h"

enum { TOKENS = 10, HEADS = 8, KV_HEADS = 2, DIM = 64, PAGE = 16 };

/* A cache of one page, the sources of its rows, one query and its result. */
static alignas(16) uint8_t k_codes[PAGE * KV_HEADS * DIM];
static alignas(16) uint8_t v_codes[PAGE * KV_HEADS * DIM];
static float k_scales[PAGE * KV_HEADS], v_scales[PAGE * KV_HEADS];
static alignas(16) float source[TOKENS][KV_HEADS][DIM];
static alignas(16) float q[HEADS][DIM], out[HEADS][DIM], lse[HEADS];

/* Every row of the cache is 1.75, so its average is, too. */
static int check(const char* kernel) {
  printf("%s: out %g (1.75), lse %g (ln 10)\n", kernel, out[0][0], lse[0]);
  for (int i = 0; i < HEADS * DIM; ++i) {
    if (fabsf(lse[i / DIM] - logf(TOKENS)) > 1e-5f) return KVFORGE_INTERNAL;
    if (fabsf(out[i / DIM][i % DIM] - 1.75f) > 1e-3f) return KVFORGE_INTERNAL;
    out[i / DIM][i % DIM] = 0;
  }
  return KVFORGE_OK;
}

/* The first status that is not OK. */
#define TRY(call) \
  if ((status = (call)) != KVFORGE_OK) return status

static const char* const kSpecs[] = {"store/e4m3_row/d64/g1/page16/f32",
                                     "decode/e4m3_row/d64/g4/page16/f32",
                                     "extend/e4m3_row/d64/g4/page16/f32"};

static int run(kvforge_engine* engine, kvforge_kernel** kernels) {
  int status;
  for (int i = 0; i < 3; ++i) {
    TRY(kvforge_prepare(engine, kSpecs[i], &kernels[i]));
  }
  const int64_t slots[TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const int32_t q_indptr[] = {0, 1}, kv_lens[] = {TOKENS}, page_table[] = {0};
  kvforge_cache_geometry cache = {.struct_size = sizeof(cache)};
  cache.k_format = "e4m3_row";
  cache.head_dim = DIM;
  cache.num_kv_heads = KV_HEADS;
  cache.page_size = PAGE;
  kvforge_cache_view k = {.struct_size = sizeof(k)}, v = k;
  TRY(kvforge_cache_make_view(&cache, KVFORGE_SIDE_K, k_codes, k_scales, 0,
                              &k));
  TRY(kvforge_cache_make_view(&cache, KVFORGE_SIDE_V, v_codes, v_scales, 0,
                              &v));
  const kvforge_source_rows rows = {source, sizeof(source[0]),
                                    sizeof(source[0][0])};
  kvforge_store_args stored = {.struct_size = sizeof(stored), .k = &k, .v = &v};
  stored.k_src = stored.v_src = rows;
  stored.slots = slots;
  stored.num_slots = PAGE;
  stored.num_tokens = TOKENS;
  stored.num_kv_heads = KV_HEADS;
  kvforge_attention_args args = {.struct_size = sizeof(args), .k = &k, .v = &v};
  args.q = q;
  args.out = out;
  args.q_token_stride = args.out_token_stride = sizeof(q);
  args.q_head_stride = args.out_head_stride = sizeof(q[0]);
  args.lse = lse;
  args.q_indptr = q_indptr;
  args.kv_lens = kv_lens;
  args.page_table = page_table;
  args.sm_scale = 0.125f;
  args.batch = args.total_q = 1;
  args.num_q_heads = HEADS;
  args.num_kv_heads = KV_HEADS;
  const kvforge_decode_launch one_block = {sizeof(one_block), {1, 1}, NULL, 0};
  TRY(kvforge_run_store(kernels[0], &stored, NULL));
  TRY(kvforge_run_decode(kernels[1], &args, &one_block, NULL));
  TRY(check("decode"));
  TRY(kvforge_run_extend(kernels[2], &args, NULL));
  return check("extend");
}

int main(void) {
  kvforge_engine_options options = {.struct_size = sizeof(options)};
  kvforge_engine* engine = NULL;
  kvforge_kernel* kernels[3] = {NULL, NULL, NULL};
  int status = kvforge_engine_options_from_environment(&options);
  for (int i = 0; i < TOKENS * KV_HEADS * DIM; ++i)
    (&source[0][0][0])[i] = 1.75f;
  if (status == KVFORGE_OK) status = kvforge_engine_create(&options, &engine);
  if (status == KVFORGE_OK) status = run(engine, kernels);
  for (int i = 0; i < 3; ++i) kvforge_kernel_release(kernels[i]);
  kvforge_engine_destroy(engine);
  printf("%s %s\n", kvforge_status_name(status), kvforge_last_error());
  return status;
}

// The C interface of kvforge: C11, no C++ type, for engines in any language.
// docs/c_api.md shows the life cycle; the C++ headers named below have formulas
// and details, which hold here as well.
//
// Errors. A call that can fail returns a status: KVFORGE_OK, or the code of an
// absl::Status. kvforge_last_error() is then its message: what was asked, what
// is supported, what to do. No call aborts, and none throws. A null or out of
// range argument is KVFORGE_INVALID_ARGUMENT; only a dangling pointer, or one
// to memory of another target, cannot be found out.
//
// Structs. `struct_size` is sizeof of the struct as the caller compiled it, in
// what is passed and in what is to be filled in. Fields may be appended: a
// shorter struct's missing fields count as 0; a longer one's unknown fields
// must be 0. Initialise with {.struct_size = sizeof(kvforge_...)}. Structs
// without `struct_size` never change within an ABI version. Flags are 0 or 1.
//
// Ownership. Nothing that is passed in is kept: strings and structs are copied
// or used up before the call returns. A string that comes out belongs to the
// handle it was asked of and lives as long as it. Memory that kernels read and
// write is the caller's and must stay until the work on the stream is done.
//
// Threads. Every call may be made from any thread, at the same time as any
// other, on the same handles; only kvforge_engine_destroy and
// kvforge_kernel_release must be the last use of their handle.
#ifndef KVFORGE_KERNELS_C_API_H_
#define KVFORGE_KERNELS_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Version ----

// Raised when a program compiled against an older header would no longer work.
#define KVFORGE_C_ABI 1

int32_t kvforge_abi_version(void);  // KVFORGE_C_ABI of the library
const char* kvforge_version(void);  // "0.1.0"
// Digest of what decides kernels' bytes: caches are shared where it is equal.
const char* kvforge_build_id(void);

// ---- Errors ----

enum {
  KVFORGE_OK = 0,
  KVFORGE_CANCELLED = 1,
  KVFORGE_UNKNOWN = 2,
  KVFORGE_INVALID_ARGUMENT = 3,
  KVFORGE_DEADLINE_EXCEEDED = 4,
  KVFORGE_NOT_FOUND = 5,
  KVFORGE_ALREADY_EXISTS = 6,
  KVFORGE_PERMISSION_DENIED = 7,
  KVFORGE_RESOURCE_EXHAUSTED = 8,
  KVFORGE_FAILED_PRECONDITION = 9,
  KVFORGE_ABORTED = 10,
  KVFORGE_OUT_OF_RANGE = 11,
  KVFORGE_UNIMPLEMENTED = 12,
  KVFORGE_INTERNAL = 13,
  KVFORGE_UNAVAILABLE = 14,
  KVFORGE_DATA_LOSS = 15,
  KVFORGE_UNAUTHENTICATED = 16
};

// Message of this thread's last call that failed, "" before the first. Valid
// until this thread's next call that fails. Never null.
const char* kvforge_last_error(void);
const char* kvforge_status_name(int status);  // "NOT_FOUND"; never null

// ---- Engine (kernels/engine.h) ----

typedef struct kvforge_engine kvforge_engine;

enum { KVFORGE_TARGET_HOST = 0, KVFORGE_TARGET_CUDA = 1 };

// A folder of compiled kernels.
typedef struct {
  const char* path;
  int64_t trusted;  // load entries that another user owns or anyone may write
} kvforge_cache_root;

// One line for a log, without its end. Called from any thread that is inside a
// call on the engine; must not call kvforge.
typedef void (*kvforge_log_function)(void* user, const char* line);

#define KVFORGE_NO_BYTE_CAP (-1)

// All 0 but struct_size: the CPU running sm_80's text, no cache on disk.
typedef struct {
  size_t struct_size;
  int32_t target;   // KVFORGE_TARGET_...
  int32_t device;   // ordinal; CUDA only
  const char* gpu;  // whose text the CPU runs, host only; null = "sm_80"
  // The first is written to, the others only read. May be null if there are 0.
  const kvforge_cache_root* cache_roots;
  int64_t num_cache_roots;
  // Bytes in the first root; 0 = 2 GiB, KVFORGE_NO_BYTE_CAP = no cap.
  int64_t cache_byte_cap;
  int32_t strict;             // compile nothing: a miss is KVFORGE_NOT_FOUND
  int32_t recompile;          // ignore entries on disk, still write them
  const char* jit_path;       // libkvforge_jit.so; null = beside libkvforge
  const char* templates_dir;  // files that replace device templates, or null
  const char* dump_dir;       // text and payload of each compile, or null
  kvforge_log_function log;   // may be null
  void* log_user;             // first argument of `log`
  uint64_t seed;              // of the fiber order, host only; 0 = 1
} kvforge_engine_options;

// Fills in cache roots and cap, strictness and the three paths from KVFORGE_...
// environment variables (runtime/base/knobs.h), as they were at the process's
// first such call, and 0 elsewhere. Its strings live as long as the process.
// Errors  INVALID_ARGUMENT  a variable's value; wrong struct_size
int kvforge_engine_options_from_environment(kvforge_engine_options* options);

// *engine: to be destroyed by the caller; null after a failure.
// Errors  INVALID_ARGUMENT  a field is out of range or names no GPU
//         UNIMPLEMENTED     the GPU is known but not served
//         UNAVAILABLE, ...  CUDA: no driver or no such device
int kvforge_engine_create(const kvforge_engine_options* options,
                          kvforge_engine** engine);

// Kernels prepared by it stay usable. Null: nothing.
void kvforge_engine_destroy(kvforge_engine* engine);

typedef struct {
  size_t struct_size;
  const char* gpu;          // "sm_90"
  int32_t target;           // KVFORGE_TARGET_...
  int32_t multiprocessors;  // that decode's grid is sized for
} kvforge_engine_facts;

int kvforge_engine_get_facts(const kvforge_engine* engine,
                             kvforge_engine_facts* facts);

typedef struct {
  size_t struct_size;
  int64_t compiles;     // this engine's, failed ones included
  int64_t disk_hits;    // kernels loaded from a cache root
  int64_t memory_hits;  // prepare calls that found a loaded kernel, or
                        // one that another thread was compiling or reading
  double compile_ms;    // summed over threads
  double load_ms;
} kvforge_statistics;

int kvforge_engine_get_statistics(const kvforge_engine* engine,
                                  kvforge_statistics* statistics);

// ---- Kernels (compiler/spec/kernel_spec.h has the grammar of a SPEC) ----

// KVFORGE_OK if a kernel of `spec` can be generated for `gpu` ("sm_89"); else
// the refusal that kvforge_prepare would give. Compiles nothing.
// Errors  INVALID_ARGUMENT    no SPEC, values no kernel has, no such GPU
//         UNIMPLEMENTED       named but not served
//         RESOURCE_EXHAUSTED  not even the smallest tile fits the GPU
int kvforge_check_spec(const char* spec, const char* gpu);

// Digits of a score function's digest and the end of the string.
#define KVFORGE_SCORE_DIGEST_BYTES 33

// Makes a score function (docs/score.md), `text` of `text_bytes` bytes, known
// to the engine and writes its digest, for a SPEC's score=DIGEST, to `digest`
// of KVFORGE_SCORE_DIGEST_BYTES bytes. From a cache, SPECs need no text.
// Errors  INVALID_ARGUMENT     the text is no score function
//         FAILED_PRECONDITION  strict: there is no compiler to read it with
int kvforge_engine_add_score_function(kvforge_engine* engine, const char* text,
                                      size_t text_bytes, char* digest);

typedef struct kvforge_kernel kvforge_kernel;

// Finds the kernel in memory or on disk, or compiles it, and loads it: may take
// seconds, and must not be called during stream capture. *kernel: a reference,
// to be released by the caller; null after a failure. It may outlive the
// engine.
// Errors  of kvforge_check_spec; also
//         NOT_FOUND    no cache root has it, and the engine is strict or lacks
//                      its score function's text
//         UNAVAILABLE  libkvforge_jit or NVRTC could not be opened
//         INTERNAL     the compiler rejected our text; its log is in the
//         message
int kvforge_prepare(kvforge_engine* engine, const char* spec,
                    kvforge_kernel** kernel);

// The same for extend in a tile in which it attends to images of the cache's
// keys in a workspace: faster where many query tokens share them, for more
// memory (kernels/extend.h).
// Errors  also RESOURCE_EXHAUSTED  there is none for this SPEC and GPU, with
// the
//                                  reason; kvforge_prepare serves then
int kvforge_prepare_extend_on_images(kvforge_engine* engine, const char* spec,
                                     kvforge_kernel** kernel);

// Null: nothing.
void kvforge_kernel_release(kvforge_kernel* kernel);

typedef struct {
  size_t struct_size;
  const char* spec;        // canonical
  const char* tile;        // "8x64/3/4"
  const char* arch;        // "sm_90a"; "host-sm_80" on the CPU
  const char* key_digest;  // of the cache entry: SHA-256, 64 hexadecimal digits
  const char* compiler;    // "nvrtc 13.0"
  int32_t registers;       // a thread; 0 on the CPU
  int32_t spill_bytes;     // stores and loads, a thread
  int32_t local_bytes;     // stack frame, a thread
  int32_t static_shared_bytes;  // a block
  int32_t dynamic_shared_bytes;
  int32_t block_threads;
} kvforge_kernel_facts;

int kvforge_kernel_get_facts(const kvforge_kernel* kernel,
                             kvforge_kernel_facts* facts);

// ---- Cache geometry (kernels/cache_geometry.h) ----

enum { KVFORGE_ORDER_NHD = 0, KVFORGE_ORDER_HND = 1 };
enum { KVFORGE_SIDE_K = 0, KVFORGE_SIDE_V = 1 };
enum {
  KVFORGE_PLANE_CODES = 0,
  KVFORGE_PLANE_ROW_SCALES = 1,
  KVFORGE_PLANE_BLOCK_SCALES = 2
};

// One layer's cache.
typedef struct {
  size_t struct_size;
  const char* k_format;     // "e4m3_row"; `kvforge formats` lists them
  const char* v_format;     // null = K's
  int32_t head_dim;         // of K, elements
  int32_t v_head_dim;       // of V, elements; 0 = head_dim
  int32_t num_kv_heads;     // 1 or more
  int32_t page_size;        // tokens, 1 or more
  int32_t order;            // KVFORGE_ORDER_...
  int32_t interleaved;      // K and V in one buffer: [page, 2, ...]
  int64_t page_pad_bytes;   // behind each page of each plane
  int64_t first_page_byte;  // where page 0 starts in each buffer
} kvforge_cache_geometry;

// One plane of one side inside its buffer, in bytes. row_bytes 0: the format
// has no such plane.
typedef struct {
  int64_t offset;  // of (page 0, slot 0, head 0)
  int64_t page_stride;
  int64_t slot_stride;
  int64_t head_stride;
  int64_t row_bytes;
} kvforge_plane;

// Rows of a plane in memory: (page, slot, head) is at
// base + page * page_stride + slot * slot_stride + head * head_stride.
typedef struct {
  void* base;  // of the engine's target
  int64_t page_stride;
  int64_t slot_stride;
  int64_t head_stride;
} kvforge_strided_rows;

// One side (K or V) of a paged cache in memory. Strides are bytes.
typedef struct {
  size_t struct_size;
  // Bases and strides: multiples of 4, wider accesses where they are of 8 or
  // 16. Rows must not overlap.
  kvforge_strided_rows codes;
  kvforge_strided_rows row_scales;    // f32 (and minimum) a row; 4-byte aligned
  kvforge_strided_rows block_scales;  // one byte a block of a row
  // Where the format's scale is given: f32 in the engine's memory, one, one a
  // kv head, or [kv heads, head_dim]; null with one scale for all: `scale`.
  const float* scale_ptr;
  float scale;
  uint32_t reserved;  // 0
} kvforge_cache_view;

// All of these:
// Errors  INVALID_ARGUMENT  a field is out of range; the message names it
//         UNIMPLEMENTED     a format no kernel serves

// One token over all heads: codes and scales of K and V, without padding.
int kvforge_cache_bytes_per_token(const kvforge_cache_geometry* geometry,
                                  int64_t* bytes);
// One page over all planes, padding included.
int kvforge_cache_bytes_per_page(const kvforge_cache_geometry* geometry,
                                 int64_t* bytes);
// Whole pages in `pool_bytes` (0 or more).
int kvforge_cache_pages_that_fit(const kvforge_cache_geometry* geometry,
                                 int64_t pool_bytes, int64_t* pages);
int kvforge_cache_plane(const kvforge_cache_geometry* geometry, int32_t side,
                        int32_t plane_kind, kvforge_plane* plane);
// The buffer of `num_pages` pages of a plane: of both sides if interleaved. 0
// if nothing has that plane. OUT_OF_RANGE if it is more than 64 bits hold.
int kvforge_cache_plane_buffer_bytes(const kvforge_cache_geometry* geometry,
                                     int32_t side, int32_t plane_kind,
                                     int64_t num_pages, int64_t* bytes);
// The view of a side over its buffers; one that the format has no plane for may
// be null. A given scale is left at 0 for the caller to set. The buffers stay
// the caller's.
int kvforge_cache_make_view(const kvforge_cache_geometry* geometry,
                            int32_t side, void* codes, void* row_scales,
                            void* block_scales, kvforge_cache_view* view);

// ---- Running ----
//
// Each call checks its arguments, queues one launch on `stream` (a CUstream or
// cudaStream_t; null is the default stream) and returns: no allocation on the
// device, no synchronisation, no compile, so launches may be captured into a
// CUDA graph. On the host target `stream` is ignored and the work is done on
// return. All pointers but those to structs are memory of the engine's target.
// A batch, token or row count of 0 launches nothing.
//
// Errors of all  INVALID_ARGUMENT  a pointer, alignment, count or stride is
//                                  wrong, or the kernel is of another kind;
//                                  nothing was launched
//                INTERNAL, ...     the driver's

// Rows that are read: (token, head) is at base + token * token_stride + head *
// head_stride. Bytes.
typedef struct {
  const void* base;
  int64_t token_stride;
  int64_t head_stride;
} kvforge_source_rows;

// Rows that are written, likewise.
typedef struct {
  void* base;
  int64_t token_stride;
  int64_t head_stride;
} kvforge_output_rows;

// Quantizes rows into a cache (kernels/store.h).
typedef struct {
  size_t struct_size;
  // The SPEC's type [num_tokens, num_kv_heads, head_dim]; bases and strides are
  // multiples of 2 bytes, of 4 for f32.
  kvforge_source_rows k_src;
  kvforge_source_rows v_src;  // [num_tokens, num_kv_heads, v_head_dim]
  const kvforge_cache_view* k;
  const kvforge_cache_view* v;
  // [num_tokens], page * page_size + slot, none twice; one below 0 or not below
  // num_slots skips its token.
  const int64_t* slots;
  int64_t num_slots;  // that the cache has: pages * page_size
  int32_t num_tokens;
  int32_t num_kv_heads;
} kvforge_store_args;

int kvforge_run_store(const kvforge_kernel* kernel,
                      const kvforge_store_args* args, void* stream);

// Attention over a paged cache (kernels/extend.h). Batch entry b has the query
// rows q_indptr[b] up to q_indptr[b + 1].
typedef struct {
  size_t struct_size;
  const void* q;           // the SPEC's type [total_q, num_q_heads, head_dim]
  int64_t q_token_stride;  // bytes; q, out and strides are multiples of 16
  int64_t q_head_stride;
  void* out;  // the SPEC's out [total_q, num_q_heads, v_head_dim]
  int64_t out_token_stride;  // bytes
  int64_t out_head_stride;
  float*
      lse;  // [total_q, num_q_heads], natural log, heads adjacent; may be null
  int64_t lse_token_stride;  // elements

  const int32_t* q_indptr;    // [batch + 1], ascending from 0
  const int32_t* kv_lens;     // [batch], tokens
  const int32_t* page_table;  // [batch, ceil(kv_len / page_size) or more]
  int64_t page_table_stride;  // elements
  const kvforge_cache_view* k;
  const kvforge_cache_view* v;
  const float* sinks;          // [num_q_heads] if the SPEC has sinks
  const float* alibi_slopes;   // [num_q_heads] if the SPEC has alibi
  const uint8_t* custom_mask;  // bits, if mask=custom
  const int32_t* mask_indptr;  // [batch], bytes, if mask=custom
  const int32_t*
      selected;  // [batch, num_kv_heads, selected_per_head] if sparse
  int32_t selected_per_head;
  float sm_scale;       // finite; of q . k
  int32_t batch;        // sequences
  int32_t total_q;      // rows of q, padding behind q_indptr[batch] included
  int32_t num_q_heads;  // num_kv_heads * the SPEC's group
  int32_t num_kv_heads;
  // Of extend on images: kvforge_extend_workspace_bytes bytes, 128-byte
  // aligned, of one call at a time; may hold anything. Otherwise not looked at.
  void* workspace;
  int64_t workspace_bytes;
  // At most, of all sequences together: where the workspace holds fewer, extend
  // takes several passes. 0: what it holds at once, one pass.
  int64_t kv_tokens;
} kvforge_attention_args;

typedef struct {
  size_t struct_size;
  int64_t kv_tokens;  // at most, of all sequences together
  // How many of these the workspace holds at a time; 0: all of them. Then its
  // bytes are those of total_q and of these, whatever kv_tokens.
  int64_t kv_tokens_per_pass;
  int32_t batch;
  int32_t num_kv_heads;
  int32_t total_q;  // at most; with several passes
  uint32_t reserved;
} kvforge_extend_sizes;

// How extend of such sizes runs best with a workspace of up to granted_bytes:
// prepared by kvforge_prepare_extend_on_images (*on_images = 1) with a
// workspace of *workspace_bytes, or by kvforge_prepare without one (0 and 0).
// The rule is ChooseExtend's (kernels/extend.h); kv_tokens_per_pass is not
// read.
int kvforge_choose_extend(const kvforge_engine* engine, const char* spec,
                          const kvforge_extend_sizes* sizes,
                          int64_t granted_bytes, int32_t* on_images,
                          int64_t* workspace_bytes);

// Bytes of workspace of launches of extend of such sizes; 0 for a kernel that
// takes none.
int kvforge_extend_workspace_bytes(const kvforge_kernel* extend,
                                   const kvforge_extend_sizes* sizes,
                                   int64_t* bytes);

int kvforge_run_extend(const kvforge_kernel* kernel,
                       const kvforge_attention_args* args, void* stream);

#define KVFORGE_MAX_DECODE_BLOCKS 65536

// How a decode launch is laid over the GPU.
typedef struct {
  int32_t blocks;           // 1 to KVFORGE_MAX_DECODE_BLOCKS
  int32_t heads_per_block;  // a power of two that divides num_kv_heads
} kvforge_decode_grid;

// The grid that fills the engine's GPU: right for any sizes, fastest for these.
int kvforge_choose_decode_grid(const kvforge_engine* engine,
                               const kvforge_kernel* decode, int32_t batch,
                               int32_t num_kv_heads, kvforge_decode_grid* grid);

// Bytes of workspace of launches with `grid`, whatever their batch and lengths;
// 0 for one block.
int kvforge_decode_workspace_bytes(const kvforge_kernel* decode,
                                   const kvforge_decode_grid* grid,
                                   int64_t* bytes);

// How decode is launched (kernels/decode.h).
typedef struct {
  size_t struct_size;
  kvforge_decode_grid grid;
  // 16-byte aligned, of one call at a time; may be null with one block. Its
  // first 4 * grid.blocks bytes are zero before the first call that uses it,
  // and zero again after each.
  void* workspace;
  int64_t workspace_bytes;
} kvforge_decode_launch;

// At most the SPEC's q_max query rows a batch entry.
int kvforge_run_decode(const kvforge_kernel* kernel,
                       const kvforge_attention_args* args,
                       const kvforge_decode_launch* launch, void* stream);

// Combines partial attention states by their log-sum-exp (kernels/merge.h).
typedef struct {
  size_t struct_size;
  const float* partial_out;  // [splits, rows, heads, head_dim], 16-byte aligned
  const float* partial_lse;  // [splits, rows, heads], natural log
  void* out;  // the SPEC's out [rows, heads, head_dim], 16-byte aligned
  int64_t out_row_stride;  // bytes
  int64_t out_head_stride;
  float* lse;              // [rows, heads], heads adjacent; may be null
  int64_t lse_row_stride;  // elements
  int32_t splits;          // 1 or more
  int32_t rows;
  int32_t heads;
  uint32_t reserved;  // 0
} kvforge_merge_args;

int kvforge_run_merge(const kvforge_kernel* kernel,
                      const kvforge_merge_args* args, void* stream);

// Reads rows of a cache back, dequantized (kernels/gather.h).
typedef struct {
  size_t struct_size;
  // The SPEC's type [num_rows, num_kv_heads, head_dim]; bases and strides are
  // multiples of 16 bytes.
  kvforge_output_rows k_out;
  kvforge_output_rows v_out;  // [num_rows, num_kv_heads, v_head_dim]
  const kvforge_cache_view* k;
  const kvforge_cache_view* v;
  // [num_rows], page * page_size + slot, in any order; one below 0 or not below
  // num_slots gives a row of zeros.
  const int64_t* slots;
  int64_t num_slots;  // that the cache has: pages * page_size
  int32_t num_rows;
  int32_t num_kv_heads;
} kvforge_gather_args;

int kvforge_run_gather(const kvforge_kernel* kernel,
                       const kvforge_gather_args* args, void* stream);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // KVFORGE_KERNELS_C_API_H_

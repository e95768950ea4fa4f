// The C face of libkvforge_jit, the only way into it: opened with dlopen on the
// first miss, so that a process with a primed cache needs no LLVM and no NVRTC.
// No C++ type, exception or allocation crosses it except through these calls.
#ifndef KVFORGE_KERNELS_JIT_API_H_
#define KVFORGE_KERNELS_JIT_API_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVFORGE_JIT_ABI 2

// Bytes owned by the library; release with kvforge_jit_free.
typedef struct {
  char* data;
  size_t size;
} kvforge_jit_bytes;

typedef struct {
  const char* spec;      // canonical SPEC
  const char* tile;      // Tile::Text()
  const char* gpu;       // "sm_89": the GPU the text is specialised for
  const char* target;    // "cuda": cubin by NVRTC; "host": x86 object by Clang
  const char* overlay;   // folder whose files replace templates, or null
  const char* dump_dir;  // folder for the text and the payload, or null
  const char* score;     // MLIR of the SPEC's score function, or null
} kvforge_jit_request;

typedef struct {
  kvforge_jit_bytes payload;  // cubin or object
  char* facts;                // JSON: registers, static_shared, dynamic_shared,
                              // spill_bytes, local_bytes, block_threads,
                              // compiler, text_digest, text_ms (spec to
                              // text), build_ms (text to payload)
  char* symbol;               // entry point inside the payload
} kvforge_jit_result;

// Each call returns 0 on success or an absl::StatusCode; on failure *error is a
// message to release with kvforge_jit_free.
int kvforge_jit_abi(void);
int kvforge_jit_compile(const kvforge_jit_request* request,
                        kvforge_jit_result* result, char** error);
// One stage's text: ir, placed, codec, tiled, cuda or ptx.
int kvforge_jit_emit(const kvforge_jit_request* request, const char* stage,
                     char** text, char** error);
// A user's score function (compiler/compiler.h): its canonical text and the
// digest that a SPEC names it by.
int kvforge_jit_score(const char* data, size_t size, char** text, char** digest,
                      char** error);
void kvforge_jit_free(void* data);

// The host target. A module stays valid until unloaded; launches of one module
// may run on several threads at once, each launch runs on its caller's thread.
typedef struct kvforge_jit_host_module kvforge_jit_host_module;
typedef struct {
  long long grid_blocks;
  int block_threads;
  int shared_bytes;  // size of the arena; an access past it fails the launch
  const void* args;  // the kernel's argument struct
  unsigned long long seed;  // of the fiber order
} kvforge_jit_host_launch;

int kvforge_jit_host_load(const void* object, size_t size, const char* symbol,
                          kvforge_jit_host_module** module, char** error);
// *shared_high_water: one past the highest shared byte accessed.
int kvforge_jit_host_run(kvforge_jit_host_module* module,
                         const kvforge_jit_host_launch* launch,
                         int* shared_high_water, char** error);
void kvforge_jit_host_unload(kvforge_jit_host_module* module);

#ifdef __cplusplus
}
#endif

#endif  // KVFORGE_KERNELS_JIT_API_H_

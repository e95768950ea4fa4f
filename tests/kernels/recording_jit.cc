// kernels/jit_api.h without a compiler: every kernel is empty, and every launch
// of one succeeds and does nothing. With it `case_suite_test --list-specs`
// finds out which kernels the tests ask for.
#pragma GCC visibility push(default)
#include "kernels/jit_api.h"
#pragma GCC visibility pop

#include <cstdlib>
#include <cstring>

struct kvforge_jit_host_module {};

namespace {

char* Copy(const char* text) {
  char* copy = static_cast<char*>(std::malloc(std::strlen(text) + 1));
  std::strcpy(copy, text);
  return copy;
}

int Refuse(char** error) {
  *error = Copy("the recording library has no texts");
  return 12;  // absl::StatusCode::kUnimplemented
}

}  // namespace

int kvforge_jit_abi(void) { return KVFORGE_JIT_ABI; }

int kvforge_jit_compile(const kvforge_jit_request*, kvforge_jit_result* result,
                        char**) {
  result->payload.data = Copy("empty");
  result->payload.size = 5;
  result->symbol = Copy("kvforge_kernel");
  result->facts = Copy(
      R"({"registers":0,"static_shared":0,"dynamic_shared":0,"spill_bytes":0,)"
      R"("local_bytes":0,"block_threads":32,"text_ms":0,"build_ms":0})");
  return 0;
}

int kvforge_jit_emit(const kvforge_jit_request*, const char*, char**,
                     char** error) {
  return Refuse(error);
}

int kvforge_jit_score(const char*, size_t, char**, char**, char** error) {
  return Refuse(error);
}

void kvforge_jit_free(void* data) { std::free(data); }

int kvforge_jit_host_load(const void*, size_t, const char*,
                          kvforge_jit_host_module** module, char**) {
  *module = new kvforge_jit_host_module;
  return 0;
}

int kvforge_jit_host_run(kvforge_jit_host_module*,
                         const kvforge_jit_host_launch*, int* shared_high_water,
                         char**) {
  *shared_high_water = 0;
  return 0;
}

void kvforge_jit_host_unload(kvforge_jit_host_module* module) { delete module; }

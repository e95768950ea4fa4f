/* The header is C11, needs nothing before it, has no hidden padding (-Wpadded:
 * an appended field would land in bytes that older callers left unset), and
 * every call of it is there to link. */
#include "kernels/c_api.h"

#include <stdio.h>
#include <string.h>

typedef void (*AnyFunction)(void);

/* Every call, so that one that is declared only does not link. */
static const AnyFunction kCalls[] = {
    (AnyFunction)kvforge_abi_version,
    (AnyFunction)kvforge_version,
    (AnyFunction)kvforge_build_id,
    (AnyFunction)kvforge_last_error,
    (AnyFunction)kvforge_status_name,
    (AnyFunction)kvforge_engine_options_from_environment,
    (AnyFunction)kvforge_engine_create,
    (AnyFunction)kvforge_engine_destroy,
    (AnyFunction)kvforge_engine_get_facts,
    (AnyFunction)kvforge_engine_get_statistics,
    (AnyFunction)kvforge_engine_add_score_function,
    (AnyFunction)kvforge_check_spec,
    (AnyFunction)kvforge_prepare,
    (AnyFunction)kvforge_kernel_release,
    (AnyFunction)kvforge_kernel_get_facts,
    (AnyFunction)kvforge_cache_bytes_per_token,
    (AnyFunction)kvforge_cache_bytes_per_page,
    (AnyFunction)kvforge_cache_pages_that_fit,
    (AnyFunction)kvforge_cache_plane,
    (AnyFunction)kvforge_cache_plane_buffer_bytes,
    (AnyFunction)kvforge_cache_make_view,
    (AnyFunction)kvforge_choose_decode_grid,
    (AnyFunction)kvforge_decode_workspace_bytes,
    (AnyFunction)kvforge_run_store,
    (AnyFunction)kvforge_run_extend,
    (AnyFunction)kvforge_run_decode,
    (AnyFunction)kvforge_run_merge,
    (AnyFunction)kvforge_run_gather,
};

int main(void) {
  kvforge_engine_options options = {.struct_size = sizeof(options)};
  kvforge_engine* engine = NULL;
  size_t i;
  if (kvforge_abi_version() != KVFORGE_C_ABI) return 1;
  for (i = 0; i < sizeof(kCalls) / sizeof(kCalls[0]); ++i) {
    if (kCalls[i] == NULL) return 2;
  }
  options.gpu = "sm_1";
  if (kvforge_engine_create(&options, &engine) != KVFORGE_INVALID_ARGUMENT ||
      engine != NULL || strstr(kvforge_last_error(), "sm_1") == NULL) {
    return 3;
  }
  printf("%s\n", kvforge_last_error());
  return 0;
}

/* Prepares and runs a merge through the C interface. */
#include <kvforge/kernels/c_api.h>
#include <stdalign.h>
#include <stdio.h>

int main(void) {
  static alignas(16) float part[64], out[64];
  const float lse = 0;
  const kvforge_engine_options options = {.struct_size = sizeof(options)};
  kvforge_engine* engine = NULL;
  kvforge_kernel* kernel = NULL;
  kvforge_merge_args args = {.struct_size = sizeof(args)};
  int status = kvforge_engine_create(&options, &engine);
  if (status == KVFORGE_OK) {
    status = kvforge_prepare(engine, "merge/d64/f32", &kernel);
  }
  part[63] = 1.75f;
  args.partial_out = part;
  args.partial_lse = &lse;
  args.out = out;
  args.out_row_stride = args.out_head_stride = sizeof(out);
  args.splits = args.rows = args.heads = 1;
  if (status == KVFORGE_OK) status = kvforge_run_merge(kernel, &args, NULL);
  printf("%s %s merged %g\n", kvforge_status_name(status), kvforge_last_error(),
         out[63]);
  kvforge_kernel_release(kernel);
  kvforge_engine_destroy(engine);
  return status == KVFORGE_OK && out[63] == 1.75f ? 0 : 1;
}

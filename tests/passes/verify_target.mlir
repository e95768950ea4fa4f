// RUN: kvforge-opt %s -kv-verify-target=gpu=sm_80 | FileCheck %s
// RUN: kvforge-opt %s -kv-verify-target=gpu=sm_90a | FileCheck %s

// Every served element passes on the oldest GPU; the kernel is unchanged.
// CHECK-LABEL: kv.kernel @decode spec("decode/nvfp4_row/d128/g4/page16/bf16/v=e4m3_row") {
// CHECK-NEXT: kv.load_codes "k" : !kv.codes<n x d, e2m1>
// CHECK-NEXT: kv.load_codes "v" : !kv.codes<n x e, e4m3>
// CHECK-NEXT: kv.yield
kv.kernel @decode spec("decode/nvfp4_row/d128/g4/page16/bf16/v=e4m3_row") {
  %k = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  %v = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  kv.yield
}

// RUN: not kvforge-opt %s -kv-verify-target=gpu=sm_75 2>&1 | FileCheck %s --check-prefix=SERVED
// RUN: not kvforge-opt %s -kv-verify-target=gpu=sm_99 2>&1 | FileCheck %s --check-prefix=KNOWN
// RUN: not kvforge-opt %s -kv-verify-target 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not kvforge-opt %s -kv-lower-codec=gpu=sm_75 2>&1 | FileCheck %s --check-prefix=SERVED
// RUN: not kvforge-opt %s -kv-choose-tile=gpu=sm_75 2>&1 | FileCheck %s --check-prefix=SERVED
// RUN: not kvforge-opt %s -kv-emit-cuda=gpu=sm_75 2>&1 | FileCheck %s --check-prefix=SERVED

// SERVED: error: GPU sm_75 is named but not served in this version; served GPUs: sm_80,
// KNOWN: error: GPU 'sm_99' is not in the table; served GPUs: sm_80,
// EMPTY: error: GPU '' is not in the table; served GPUs: sm_80,
kv.kernel @merge spec("merge/d128/bf16") {
  kv.yield
}

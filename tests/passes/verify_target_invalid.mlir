// RUN: kvforge-opt %s -split-input-file -verify-diagnostics -kv-verify-target=gpu=sm_80

// expected-error @below {{kv.kernel has no spec; sizes and types come from one; write spec("decode/bf16/d128/g4/page16/bf16") after the kernel's name}}
kv.kernel @no_spec {
  kv.yield
}

// -----

// A head_dim that is no whole number of a format's blocks.
// expected-error @below {{head_dim 80 with format mxfp8 is not supported: a block scale covers 32 elements}}
kv.kernel @format spec("decode/mxfp8/d80/g4/page16/bf16") {
  kv.yield
}

// -----

// What another kernel computes with.
// expected-error @below {{named but not served in this version}}
kv.kernel @feature spec("decode/bf16/d128/g4/page16/bf16/compute=fp8") {
  kv.yield
}

// -----

// expected-error @below {{extend/e4m3_row/d128/g4/page16/bf16/compute=fp8 on sm_80: compute=fp8 needs products of warpgroups of 8-bit floats; GPUs that have them: sm_90; leave compute out}}
kv.kernel @fp8 spec("extend/e4m3_row/d128/g4/page16/bf16/compute=fp8") {
  kv.yield
}

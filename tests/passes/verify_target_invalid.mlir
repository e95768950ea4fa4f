// RUN: kvforge-opt %s -split-input-file -verify-diagnostics -kv-verify-target=gpu=sm_80

// expected-error @below {{kv.kernel has no spec; sizes and types come from one; write spec("decode/bf16/d128/g4/page16/bf16") after the kernel's name}}
kv.kernel @no_spec {
  kv.yield
}

// -----

// A format that is named and sized but that no kernel serves.
// expected-error @below {{mxfp8 is named but not served in this version}}
kv.kernel @format spec("decode/mxfp8/d128/g4/page16/bf16") {
  kv.yield
}

// -----

// A feature that the grammar knows and no kernel has.
// expected-error @below {{named but not served in this version}}
kv.kernel @feature spec("decode/bf16/d128/g4/page16/bf16/alibi") {
  kv.yield
}

// -----

// Each element without a function is reported, not the first only.
kv.kernel @elements spec("decode/bf16/d128/g4/page16/bf16") {
  // expected-error @below {{no device function decodes u4 exactly on sm_80; elements that have one: bf16, f16, e4m3, e5m2, i8, e2m1; use a format of one of these}}
  %k = kv.load_codes "k" : !kv.codes<n x d, u4>
  // expected-error @below {{no device function decodes u4 exactly on sm_80}}
  %v = kv.load_codes "v" : !kv.codes<n x e, u4>
  kv.yield
}

// -----

kv.kernel @encode spec("store/bf16/d128/g1/page16/bf16") {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  // expected-error @below {{no device function encodes u4 exactly on sm_80; elements that have one: bf16, f16, e4m3, e5m2, i8, e2m1; use a format of one of these}}
  %c = kv.quantize %x : (!kv.mat<n x d, bf16>) -> !kv.codes<n x d, u4>
  kv.yield
}

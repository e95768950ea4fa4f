// RUN: kvforge-opt %s -split-input-file -verify-diagnostics -kv-lower-codec=gpu=sm_100

// e4m3 * e4m3: 4 + 4 significand bits fit f16, but 448 * 448 passes 65504; with
// the scale placed, 2^-8 lower, the smallest product is 2^-26, below 2^-24.
kv.kernel @range {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %b = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
  // expected-error @below {{no device function decodes e4m3 with a block scale of e4m3 exactly on sm_100}}
  %k = kv.decode %c, %b
      : (!kv.codes<n x d, e4m3>, !kv.scale<n x d/16, e4m3>) -> !kv.mat<n x d, f32>
  kv.yield
}

// -----

// ue8m0 reaches 2^127; no operand holds it.
kv.kernel @block_scale {
  %c = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  %b = kv.load_scale "k" : !kv.scale<n x d/32, ue8m0>
  // expected-error @below {{no device function decodes e2m1 with a block scale of ue8m0 exactly on sm_100}}
  %k = kv.decode %c, %b
      : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/32, ue8m0>) -> !kv.mat<n x d, f32>
  kv.yield
}

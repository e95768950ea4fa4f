// RUN: kvforge-opt %s -split-input-file -verify-diagnostics -kv-place-scales

// An f32 scale per element: 24 bits fit no operand and no dot absorbs it.
kv.kernel @per_element {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "k" : !kv.scale<n x d>
  // expected-error @below {{has a scale over 'n x d', one value per element; a dot over d absorbs scales over its sides or over blocks; store the product as codes of a wider element instead}}
  %k = kv.dequant %c scales(%s)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n x d>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// -----

kv.kernel @two_blocks {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "k" : !kv.scale<n x d/32, ue8m0>
  %t = kv.load_scale "k" : !kv.scale<n x d/64, ue8m0>
  // expected-error @below {{has scales over d/32 and over d/64; one block length can be summed apart; use one}}
  %k = kv.dequant %c scales(%s, %t)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n x d/32, ue8m0>, !kv.scale<n x d/64, ue8m0>)
      -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// -----

kv.kernel @other_use {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  // expected-error @below {{uses dequantized codes, which exist only as operands of kv.dot; put the op behind the dot}}
  %s = kv.sum %k over(d) : !kv.mat<n x d, f32> -> !kv.mat<n, f32>
  kv.yield %s : !kv.mat<n, f32>
}

// -----

kv.kernel @partial_already {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  // expected-error @below {{is partial before scales are placed; write reduce(d)}}
  %o = kv.dot %q, %k reduce(d/32)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n x d/32, f32>
  kv.yield %o : !kv.mat<m x n x d/32, f32>
}

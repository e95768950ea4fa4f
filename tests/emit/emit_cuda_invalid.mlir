// RUN: kvforge-opt %s -split-input-file -verify-diagnostics -kv-place-scales -kv-lower-codec=gpu=sm_89 -kv-emit-cuda=gpu=sm_89

// IR that is right, but that no template can serve, is refused by name.

// expected-error @below {{kv.scale has no template: a scale over 'd' on an operand or on masked scores; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; use a format that needs none}}
kv.kernel @k_channel spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k0 = kv.load_scale "k" : !kv.scale<d>
  %k = kv.dequant %kc scales(%k0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<d>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.dequant %vc
      : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.scale has no template: a scale over 'n x d/16' from kv.load_scale; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; use a format that needs none}}
kv.kernel @k_partial spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k0 = kv.load_scale "k" : !kv.scale<n x d/16, ue8m0>
  %k = kv.dequant %kc scales(%k0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n x d/16, ue8m0>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.dequant %vc
      : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.decode has no template: a minimum without a row scale before it; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; store a scale of 1}}
kv.kernel @k_minimum spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %km = kv.load_scale "k" minimum : !kv.scale<n>
  %k = kv.dequant %kc minimum(%km)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.dequant %vc
      : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.scale has no template: a scale over 'e' from kv.load_scale; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; use a format that needs none}}
kv.kernel @v_channel spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc
      : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v0 = kv.load_scale "v" : !kv.scale<e>
  %v = kv.dequant %vc scales(%v0)
      : (!kv.codes<n x e, e4m3>, !kv.scale<e>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.scale has no template: a scale over 'n x e/16' from kv.load_scale; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; use a format that needs none}}
kv.kernel @v_block spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc
      : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e2m1>
  %v0 = kv.load_scale "v" : !kv.scale<n x e/16, ue8m0>
  %v = kv.dequant %vc scales(%v0)
      : (!kv.codes<n x e, e2m1>, !kv.scale<n x e/16, ue8m0>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.shift has no template: a minimum behind a uniform scale; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; use a format that needs none}}
kv.kernel @v_minimum spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc
      : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %vm = kv.load_scale "v" minimum : !kv.scale<n>
  %v0 = kv.arg_scale "v_scale" : !kv.scale<>
  %v = kv.dequant %vc scales(%v0) minimum(%vm)
      : (!kv.codes<n x e, e4m3>, !kv.scale<>, !kv.scale<n>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.scale has no template: two row scales on one side; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; store their product}}
kv.kernel @two_rows spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k0 = kv.load_scale "k" : !kv.scale<n>
  %k1 = kv.load_scale "k" : !kv.scale<n>
  %k = kv.dequant %kc scales(%k0, %k1)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.dequant %vc
      : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.scale has no template: a uniform scale behind kv.map; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; scale before mapping}}
kv.kernel @late_uniform spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc
      : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %sm = kv.arg_scale "sm_scale" : !kv.scale<>
  %cap = kv.map %s softcap(5.0) : !kv.mat<m x n, f32>
  %scaled = kv.scale %cap, %sm : !kv.mat<m x n, f32>, !kv.scale<> -> !kv.mat<m x n, f32>
  %t = kv.mask %scaled : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.dequant %vc
      : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{emit: kernel without a tile; supported is the IR behind kv-choose-tile; run it first}}
kv.kernel @no_tile spec("merge/d128/bf16") {
  kv.yield
}

// -----

// expected-error @below {{emit: a store kernel without kv.store_codes of both sides; the template stores K and V; add the other}}
kv.kernel @one_side spec("store/bf16/d128/g1/page16/bf16") tile("16x0/1/4") {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  %c = kv.quantize %x : (!kv.mat<n x d, bf16>) -> !kv.codes<n x d, bf16>
  kv.store_codes "k" %c : !kv.codes<n x d, bf16>
  kv.yield
}

// -----

// expected-error @below {{kv.quantize to e5m2 with 0 stored and 1 given scales has no template; row quantizers: bf16, f16, e4m3_tensor, e4m3_head, e4m3_channel, e4m3_row, e5m2_tensor, int8_row, int4_row, nvfp4_row, nvfp4, mxfp8, mxfp4; use one of these formats}}
kv.kernel @head_scale spec("store/bf16/d128/g1/page16/bf16") tile("16x0/1/4") {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  %g = kv.arg_scale "k_scale" : !kv.scale<h>
  %c = kv.quantize %x given(%g)
      : (!kv.mat<n x d, bf16>, !kv.scale<h>) -> !kv.codes<n x d, e5m2>
  kv.store_codes "k" %c : !kv.codes<n x d, e5m2>
  kv.yield
}

// -----

// expected-error @below {{kv.map has no template: alibi or score before another map or scale; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; make it the last op before kv.mask}}
kv.kernel @alibi_before_softcap spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc
      : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %a = kv.map %s alibi : !kv.mat<m x n, f32>
  %b = kv.map %a softcap(30.0) : !kv.mat<m x n, f32>
  %t = kv.mask %b : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.dequant %vc
      : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.dequant has no template: a row scale and a given one; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; store their product}}
kv.kernel @gather_two_scales spec("gather/e4m3_row/d128/g1/page16/bf16") tile("16x0/1/4") {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "k" : !kv.scale<n>
  %g = kv.arg_scale "k_scale" : !kv.scale<>
  %k = kv.dequant %c scales(%s, %g)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>, !kv.scale<>) -> !kv.mat<n x d, f32>
  kv.store_rows "k" %k : !kv.mat<n x d, f32>
  kv.yield
}

// -----

// expected-error @below {{emit: a gather kernel without kv.store_rows of both sides; the template reads K and V; add the other}}
kv.kernel @gather_one_side spec("gather/e4m3_row/d128/g1/page16/bf16") tile("16x0/1/4") {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  kv.store_rows "k" %k : !kv.mat<n x d, f32>
  kv.yield
}

// -----

// expected-error @below {{kv.scale has no template: two channel scales on one side; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; give their product}}
kv.kernel @two_channel_scales spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %g = kv.arg_scale "v_scale" : !kv.scale<h x e>
  %v = kv.dequant %vc scales(%g, %g)
      : (!kv.codes<n x e, e4m3>, !kv.scale<h x e>, !kv.scale<h x e>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// -----

// expected-error @below {{kv.decode has no template: a minimum beside channel scales; templates serve scales over nothing, heads and tokens, given scales over heads and channels, minima over tokens, e4m3 block scales in the operand, and ue8m0 scales of blocks of 32 channels; use a format that needs none}}
kv.kernel @minimum_and_channel spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %t = kv.mask %s : !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %t over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %g = kv.arg_scale "v_scale" : !kv.scale<h x e>
  %r = kv.load_scale "v" : !kv.scale<n>
  %min = kv.load_scale "v" minimum : !kv.scale<n>
  %v = kv.dequant %vc scales(%r, %g) minimum(%min)
      : (!kv.codes<n x e, e4m3>, !kv.scale<n>, !kv.scale<h x e>, !kv.scale<n>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

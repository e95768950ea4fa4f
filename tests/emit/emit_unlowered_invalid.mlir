// RUN: kvforge-opt %s -split-input-file -verify-diagnostics -kv-emit-cuda=gpu=sm_89

// IR that a pass is missing from is refused by the pass's name.

// expected-error @below {{emit: expected kv.decode, found kv.dequant; supported is the IR behind kv-place-scales and kv-lower-codec; run these passes first}}
kv.kernel @no_placement spec("decode/bf16/d128/g4/page16/bf16") tile("8x64/3/4") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.dequant %kc
      : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
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

// expected-error @below {{emit: a kv.quantize without an encoder; supported is the IR behind kv-lower-codec; run it first}}
kv.kernel @no_codec spec("store/bf16/d128/g1/page16/bf16") tile("16x0/1/4") {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  %c, %s = kv.quantize %x
      : (!kv.mat<n x d, bf16>) -> (!kv.codes<n x d, e4m3>, !kv.scale<n>)
  kv.store_codes "k" %c, %s : !kv.codes<n x d, e4m3>, !kv.scale<n>
  kv.yield
}

// -----

// expected-error @below {{emit: device function 'Unknown' is not in the codec table; decoders: bf16, f16, e4m3, e5m2, i8, u4, e2m1, encoders: bf16, f16, e4m3, e5m2, i8, u4, e2m1, ue8m0; let kv-lower-codec choose}}
kv.kernel @unknown spec("store/bf16/d128/g1/page16/bf16") tile("16x0/1/4") {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  %c, %s = kv.quantize %x encoder("Unknown")
      : (!kv.mat<n x d, bf16>) -> (!kv.codes<n x d, e4m3>, !kv.scale<n>)
  kv.store_codes "k" %c, %s : !kv.codes<n x d, e4m3>, !kv.scale<n>
  kv.yield
}

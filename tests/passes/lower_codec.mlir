// RUN: kvforge-opt %s -kv-lower-codec=gpu=sm_80 | FileCheck %s --check-prefixes=ALL,SM80
// RUN: kvforge-opt %s -kv-lower-codec=gpu=sm_89 | FileCheck %s --check-prefixes=ALL,SM89
// RUN: kvforge-opt %s -kv-lower-codec=gpu=sm_100 | FileCheck %s --check-prefixes=ALL,SM100

// Bits placed in an f16 leave 2^-8, repaid behind the softmax scale; sm_89 up
// convert in hardware and owe nothing. bf16 q is scaled per row to fit f16.
// ALL-LABEL: kv.kernel @e4m3
// ALL: %[[Q:.*]] = kv.load_q
// SM80: %[[K:.*]] = kv.decode %{{.*}} sequence("E4m3ToF16Placed4") : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f16>
// SM89: %[[K:.*]] = kv.decode %{{.*}} sequence("E4m3ToF16Hardware4") : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f16>
// SM100: %[[K:.*]] = kv.decode %{{.*}} sequence("E4m3ToF16Hardware4") : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f16>
// ALL-NEXT: %[[QN:.*]] = kv.narrow %[[Q]] row_scaled : !kv.mat<m x d, bf16> -> !kv.mat<m x d, f16>
// ALL-NEXT: %[[DOT:.*]] = kv.dot %[[QN]], %[[K]] reduce(d) : !kv.mat<m x d, f16>, !kv.mat<n x d, f16> -> !kv.mat<m x n, f32>
// ALL-NEXT: %[[S:.*]] = kv.scale %[[DOT]], %{{.*}} : !kv.mat<m x n, f32>, !kv.scale<n>
// ALL-NEXT: %[[T:.*]] = kv.scale %[[S]], %{{.*}} : !kv.mat<m x n, f32>, !kv.scale<>
// SM80-NEXT: %[[C:.*]] = kv.const_scale exp2(8) : !kv.scale<>
// SM80-NEXT: %[[R:.*]] = kv.scale %[[T]], %[[C]]
// SM80-NEXT: kv.yield %[[R]]
// SM89-NEXT: kv.yield %[[T]]
// SM100-NEXT: kv.yield %[[T]]
kv.kernel @e4m3 {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %sm = kv.arg_scale "sm_scale" : !kv.scale<>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %ks = kv.load_scale "k" : !kv.scale<n>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %s = kv.scale %dot, %ks : !kv.mat<m x n, f32>, !kv.scale<n> -> !kv.mat<m x n, f32>
  %t = kv.scale %s, %sm : !kv.mat<m x n, f32>, !kv.scale<> -> !kv.mat<m x n, f32>
  kv.yield %t : !kv.mat<m x n, f32>
}

// Placed codes owe 2^14, the block scale nothing: 2^-24 is f16's least.
// ALL-LABEL: kv.kernel @nvfp4
// SM80: kv.decode %{{.*}}, %{{.*}} sequence("E2m1ToF16Placed4") scale_sequence("E4m3ScalePairPlaced")
// SM89: kv.decode %{{.*}}, %{{.*}} sequence("E2m1ToF16Placed4") scale_sequence("E4m3ScalePairHardware")
// SM100: kv.decode %{{.*}}, %{{.*}} sequence("E2m1ToF16Hardware4") scale_sequence("E4m3ScalePairHardware")
// ALL-NEXT: kv.narrow %{{.*}} row_scaled : !kv.mat<m x d, f32> -> !kv.mat<m x d, f16>
// ALL-NEXT: %[[DOT:.*]] = kv.dot
// SM80-NEXT: kv.const_scale exp2(14)
// SM80-NEXT: %[[R:.*]] = kv.scale %[[DOT]]
// SM80-NEXT: kv.yield %[[R]]
// SM89-NEXT: kv.const_scale exp2(14)
// SM89-NEXT: %[[R:.*]] = kv.scale %[[DOT]]
// SM89-NEXT: kv.yield %[[R]]
// SM100-NEXT: kv.yield %[[DOT]]
kv.kernel @nvfp4 {
  %q = kv.load_q : !kv.mat<m x d, f32>
  %c = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  %b = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
  %k = kv.decode %c, %b
      : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, f32>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %dot : !kv.mat<m x n, f32>
}

// An f16 q of an f16 operand is left alone.
// ALL-LABEL: kv.kernel @f16_query
// ALL: %[[Q:.*]] = kv.load_q
// ALL: %[[K:.*]] = kv.decode
// ALL-NEXT: kv.dot %[[Q]], %[[K]] reduce(d) : !kv.mat<m x d, f16>, !kv.mat<n x d, f16>
kv.kernel @f16_query {
  %q = kv.load_q : !kv.mat<m x d, f16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, f16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %dot : !kv.mat<m x n, f32>
}

// A 16-bit cache is its own operand type: bf16 has the range of f32, so that
// no row is scaled; f16 has not.
// ALL-LABEL: kv.kernel @bf16_cache
// ALL: kv.decode %{{.*}} sequence("PassThrough4") : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, bf16>
// ALL-NEXT: kv.narrow %{{[0-9]+}} : !kv.mat<m x d, f32> -> !kv.mat<m x d, bf16>
// ALL-NEXT: kv.dot
// ALL-NEXT: kv.yield
kv.kernel @bf16_cache {
  %q = kv.load_q : !kv.mat<m x d, f32>
  %c = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %k = kv.decode %c : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, f32>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %dot : !kv.mat<m x n, f32>
}

// ALL-LABEL: kv.kernel @f16_cache
// ALL: kv.decode %{{.*}} sequence("PassThrough4") : (!kv.codes<n x d, f16>) -> !kv.mat<n x d, f16>
// ALL-NEXT: kv.narrow %{{[0-9]+}} row_scaled : !kv.mat<m x d, bf16> -> !kv.mat<m x d, f16>
kv.kernel @f16_cache {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, f16>
  %k = kv.decode %c : (!kv.codes<n x d, f16>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %dot : !kv.mat<m x n, f32>
}

// Softmax weights are in [0, 1] and fit f16; scaled by row they need not.
// ALL-LABEL: kv.kernel @weights
// ALL: %[[P:.*]], %{{.*}} = kv.softmax
// ALL: kv.narrow %[[P]] : !kv.mat<m x n, f32> -> !kv.mat<m x n, f16>
// ALL: %[[PS:.*]] = kv.scale %[[P]]
// ALL: kv.narrow %[[PS]] row_scaled : !kv.mat<m x n, f32> -> !kv.mat<m x n, f16>
kv.kernel @weights {
  %q = kv.load_q : !kv.mat<m x d, f16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, f16>
  %k = kv.decode %kc : (!kv.codes<n x d, f16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, f16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.decode %c : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  %vs = kv.load_scale "v" : !kv.scale<n>
  %ps = kv.scale %p, %vs : !kv.mat<m x n, f32>, !kv.scale<n> -> !kv.mat<m x n, f32>
  %w = kv.decode %c : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o2 = kv.dot %ps, %w reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o, %o2 : !kv.mat<m x e, f32>, !kv.mat<m x e, f32>
}

// A constant that is there takes the repayment: 2^3 * 2^8.
// ALL-LABEL: kv.kernel @folds
// SM80: kv.const_scale exp2(11)
// SM80-NOT: kv.const_scale
// SM89: kv.const_scale exp2(3)
kv.kernel @folds {
  %q = kv.load_q : !kv.mat<m x d, f16>
  %two = kv.const_scale exp2(3) : !kv.scale<>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, f16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %s = kv.scale %dot, %two : !kv.mat<m x n, f32>, !kv.scale<> -> !kv.mat<m x n, f32>
  kv.yield %s : !kv.mat<m x n, f32>
}

// The repayment of partial dots joins the uniform scale behind their sum, and
// never moves past a kv.shift, which adds what was not divided.
// ALL-LABEL: kv.kernel @partial
// SM80: kv.sum
// SM80-NEXT: %[[S:.*]] = kv.scale
// SM80-NEXT: kv.const_scale exp2(8)
// SM80-NEXT: kv.scale %[[S]]
// ALL-LABEL: kv.kernel @shifted
// SM80: %[[DOT:.*]] = kv.dot
// SM80-NEXT: kv.const_scale exp2(8)
// SM80-NEXT: %[[T:.*]] = kv.scale %[[DOT]]
// SM80-NEXT: kv.sum
// SM80-NEXT: kv.shift %[[T]]
kv.kernel @partial {
  %q = kv.load_q : !kv.mat<m x d, f16>
  %sm = kv.arg_scale "sm_scale" : !kv.scale<>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d/32)
      : !kv.mat<m x d, f16>, !kv.mat<n x d, f32> -> !kv.mat<m x n x d/32, f32>
  %sum = kv.sum %dot over(d/32) : !kv.mat<m x n x d/32, f32> -> !kv.mat<m x n, f32>
  %s = kv.scale %sum, %sm : !kv.mat<m x n, f32>, !kv.scale<> -> !kv.mat<m x n, f32>
  kv.yield %s : !kv.mat<m x n, f32>
}
kv.kernel @shifted {
  %q = kv.load_q : !kv.mat<m x d, f16>
  %sm = kv.arg_scale "sm_scale" : !kv.scale<>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, f16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %sum = kv.sum %q over(d) : !kv.mat<m x d, f16> -> !kv.mat<m, f32>
  %t = kv.shift %dot, %sum : !kv.mat<m x n, f32>, !kv.mat<m, f32>
  %s = kv.scale %t, %sm : !kv.mat<m x n, f32>, !kv.scale<> -> !kv.mat<m x n, f32>
  kv.yield %s : !kv.mat<m x n, f32>
}

// ALL-LABEL: kv.kernel @store
// SM80: kv.quantize %{{.*}} encoder("E2m1EncodePlaced") scale_encoder("E4m3EncodePlaced")
// SM89: kv.quantize %{{.*}} encoder("E2m1EncodePlaced") scale_encoder("E4m3EncodeHardware")
// SM100: kv.quantize %{{.*}} encoder("E2m1EncodeHardware") scale_encoder("E4m3EncodeHardware")
// SM80: kv.quantize %{{.*}} encoder("E4m3EncodePlaced") : (!kv.mat<n x e, bf16>) -> (!kv.codes<n x e, e4m3>, !kv.scale<n>)
// SM89: kv.quantize %{{.*}} encoder("E4m3EncodeHardware") :
// ALL: kv.quantize %{{[0-9]+}} : (!kv.mat<n x e, bf16>) -> !kv.codes<n x e, bf16>
kv.kernel @store {
  %x = kv.load_rows "k" : !kv.mat<n x d, bf16>
  %y = kv.load_rows "v" : !kv.mat<n x e, bf16>
  %c, %s:2 = kv.quantize %x : (!kv.mat<n x d, bf16>)
      -> (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>)
  %d, %t = kv.quantize %y
      : (!kv.mat<n x e, bf16>) -> (!kv.codes<n x e, e4m3>, !kv.scale<n>)
  %e = kv.quantize %y : (!kv.mat<n x e, bf16>) -> !kv.codes<n x e, bf16>
  kv.yield
}

// Rows that are written: the dequant names what decodes its codes.
// ALL-LABEL: kv.kernel @written
// SM80: kv.dequant %{{.*}} scales(%{{.*}}) sequence("E4m3ToF16Placed4") : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
// SM89: kv.dequant %{{.*}} scales(%{{.*}}) sequence("E4m3ToF16Hardware4") : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
// SM100: kv.dequant %{{.*}} scales(%{{.*}}) sequence("E4m3ToF16Hardware4") : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
kv.kernel @written {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "k" : !kv.scale<n>
  %r = kv.dequant %c scales(%s)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  kv.store_rows "k" %r : !kv.mat<n x d, f32>
  kv.yield
}

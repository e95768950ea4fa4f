// RUN: kvforge-opt %s | kvforge-opt | FileCheck %s
// RUN: kvforge-opt %s -mlir-print-op-generic | kvforge-opt | FileCheck %s

// CHECK-LABEL: kv.kernel @attention spec("decode/bf16/d64/g1/page16/bf16") tile("8x64/3/4")
kv.kernel @attention spec("decode/bf16/d64/g1/page16/bf16") tile("8x64/3/4") {
  // CHECK: %[[Q:.*]] = kv.load_q : !kv.mat<m x d, bf16>
  %q = kv.load_q : !kv.mat<m x d, bf16>
  // CHECK: %[[C:.*]] = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  %c = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  // CHECK: %[[B:.*]] = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
  %b = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
  // CHECK: %[[S:.*]] = kv.load_scale "k" : !kv.scale<n>
  %s = kv.load_scale "k" : !kv.scale<n>
  // CHECK: %[[M:.*]] = kv.load_scale "k" minimum : !kv.scale<n>
  %m = kv.load_scale "k" minimum : !kv.scale<n>
  // CHECK: %[[K:.*]] = kv.dequant %[[C]] scales(%[[B]], %[[S]]) minimum(%[[M]]) : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  %k = kv.dequant %c scales(%b, %s) minimum(%m)
      : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>, !kv.scale<n>)
      -> !kv.mat<n x d, f32>
  // CHECK: %[[DOT:.*]] = kv.dot %[[Q]], %[[K]] reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  // CHECK: %[[SM:.*]] = kv.arg_scale "sm_scale" : !kv.scale<>
  %sm = kv.arg_scale "sm_scale" : !kv.scale<>
  // CHECK: kv.scale %[[DOT]], %[[SM]] : !kv.mat<m x n, f32>, !kv.scale<> -> !kv.mat<m x n, f32>
  %scaled = kv.scale %dot, %sm
      : !kv.mat<m x n, f32>, !kv.scale<> -> !kv.mat<m x n, f32>
  // CHECK: kv.arg_scale "k_scale" : !kv.scale<h>
  %head = kv.arg_scale "k_scale" : !kv.scale<h>
  // CHECK: kv.const_scale exp2(-8) : !kv.scale<>
  %power = kv.const_scale exp2(-8) : !kv.scale<>
  // CHECK: %[[SUM:.*]] = kv.sum %[[Q]] over(d) : !kv.mat<m x d, bf16> -> !kv.mat<m, f32>
  %sum = kv.sum %q over(d) : !kv.mat<m x d, bf16> -> !kv.mat<m, f32>
  // CHECK: kv.shift %{{.*}}, %[[SUM]] : !kv.mat<m x n, f32>, !kv.mat<m, f32>
  %shifted = kv.shift %scaled, %sum : !kv.mat<m x n, f32>, !kv.mat<m, f32>
  // CHECK: kv.map %{{.*}} softcap(3.000000e+01) : !kv.mat<m x n, f32>
  %capped = kv.map %shifted softcap(3.000000e+01) : !kv.mat<m x n, f32>
  // CHECK: %[[BIAS:.*]] = kv.map %{{.*}} alibi : !kv.mat<m x n, f32>
  %biased = kv.map %capped alibi : !kv.mat<m x n, f32>
  // CHECK: %[[OWN:.*]] = kv.map %[[BIAS]] score {
  // CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: i32, %{{.*}}: i32, %{{.*}}: i32):
  // CHECK-NEXT: %[[X:.*]] = math.tanh %[[S]] : f32
  // CHECK-NEXT: kv.return %[[X]]
  // CHECK-NEXT: } : !kv.mat<m x n, f32>
  %own = kv.map %biased score {
  ^bb0(%score: f32, %i: i32, %j: i32, %h: i32):
    %x = math.tanh %score : f32
    kv.return %x
  } : !kv.mat<m x n, f32>
  // CHECK: kv.mask %[[OWN]] causal window(4096) : !kv.mat<m x n, f32>
  %windowed = kv.mask %own causal window(4096) : !kv.mat<m x n, f32>
  // CHECK: kv.mask %{{.*}} custom window(9) selected(16) : !kv.mat<m x n, f32>
  %masked = kv.mask %windowed custom window(9) selected(16) : !kv.mat<m x n, f32>
  // CHECK: kv.mask %{{.*}} : !kv.mat<m x n, f32>
  %all = kv.mask %masked : !kv.mat<m x n, f32>
  // CHECK: kv.softmax %{{.*}} over(n) sinks : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %p, %lse = kv.softmax %all over(n) sinks
      : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  // CHECK: kv.narrow %{{.*}} row_scaled : !kv.mat<m x n, f32> -> !kv.mat<m x n, f16>
  %narrow = kv.narrow %p row_scaled : !kv.mat<m x n, f32> -> !kv.mat<m x n, f16>
  %vc = kv.load_codes "v" : !kv.codes<n x e, e2m1>
  %vb = kv.load_scale "v" : !kv.scale<n x e/16, e4m3>
  // CHECK: kv.decode %{{.*}}, %{{.*}} sequence("E2m1ToF16Placed4") scale_sequence("E4m3ScalePairPlaced") : (!kv.codes<n x e, e2m1>, !kv.scale<n x e/16, e4m3>) -> !kv.mat<n x e, f16>
  %v = kv.decode %vc, %vb sequence("E2m1ToF16Placed4")
      scale_sequence("E4m3ScalePairPlaced")
      : (!kv.codes<n x e, e2m1>, !kv.scale<n x e/16, e4m3>) -> !kv.mat<n x e, f16>
  // CHECK: kv.decode %{{[0-9]+}} : (!kv.codes<n x e, e2m1>) -> !kv.mat<n x e, f32>
  %plain = kv.decode %vc : (!kv.codes<n x e, e2m1>) -> !kv.mat<n x e, f32>
  %o = kv.dot %narrow, %v reduce(n)
      : !kv.mat<m x n, f16>, !kv.mat<n x e, f16> -> !kv.mat<m x e, f32>
  // CHECK: kv.yield %{{.*}}, %{{.*}} : !kv.mat<m x e, f32>, !kv.mat<m, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// The partial dot of a block, and weights per block of output columns.
// CHECK-LABEL: kv.kernel @blocks {
kv.kernel @blocks {
  %q = kv.load_q : !kv.mat<m x d, f16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %kc : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  // CHECK: %[[DOT:.*]] = kv.dot %{{.*}}, %{{.*}} reduce(d/32) : !kv.mat<m x d, f16>, !kv.mat<n x d, f32> -> !kv.mat<m x n x d/32, f32>
  %dot = kv.dot %q, %k reduce(d/32)
      : !kv.mat<m x d, f16>, !kv.mat<n x d, f32> -> !kv.mat<m x n x d/32, f32>
  // CHECK: kv.sum %[[DOT]] over(d/32) : !kv.mat<m x n x d/32, f32> -> !kv.mat<m x n, f32>
  %s = kv.sum %dot over(d/32) : !kv.mat<m x n x d/32, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %vs = kv.load_scale "v" : !kv.scale<n x e/32, ue8m0>
  // CHECK: %[[W:.*]] = kv.scale %{{.*}}, %{{.*}} : !kv.mat<m x n, f32>, !kv.scale<n x e/32, ue8m0> -> !kv.mat<m x n x e/32, f32>
  %w = kv.scale %p, %vs : !kv.mat<m x n, f32>, !kv.scale<n x e/32, ue8m0>
      -> !kv.mat<m x n x e/32, f32>
  %vc = kv.load_codes "v" : !kv.codes<n x e, u4>
  %v = kv.decode %vc : (!kv.codes<n x e, u4>) -> !kv.mat<n x e, f32>
  // CHECK: kv.dot %[[W]], %{{.*}} reduce(n) : !kv.mat<m x n x e/32, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  %o = kv.dot %w, %v reduce(n) : !kv.mat<m x n x e/32, f32>, !kv.mat<n x e, f32>
      -> !kv.mat<m x e, f32>
  kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

// CHECK-LABEL: kv.kernel @gather spec("gather/e4m3_row/d64/g1/page16/f32")
kv.kernel @gather spec("gather/e4m3_row/d64/g1/page16/f32") {
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %s = kv.load_scale "v" : !kv.scale<n>
  // CHECK: %[[R:.*]] = kv.dequant %{{.*}} scales(%{{.*}}) sequence("E4m3ToF16Placed4") : (!kv.codes<n x e, e4m3>, !kv.scale<n>) -> !kv.mat<n x e, f32>
  %r = kv.dequant %c scales(%s) sequence("E4m3ToF16Placed4")
      : (!kv.codes<n x e, e4m3>, !kv.scale<n>) -> !kv.mat<n x e, f32>
  // CHECK: kv.store_rows "v" %[[R]] : !kv.mat<n x e, f32>
  kv.store_rows "v" %r : !kv.mat<n x e, f32>
  kv.yield
}

// CHECK-LABEL: kv.kernel @store spec("store/nvfp4_row/d64/g1/page16/f32")
kv.kernel @store spec("store/nvfp4_row/d64/g1/page16/f32") {
  // CHECK: %[[X:.*]] = kv.load_rows "k" : !kv.mat<n x d, f32>
  %x = kv.load_rows "k" : !kv.mat<n x d, f32>
  // CHECK: %[[C:.*]], %[[S:.*]]:2 = kv.quantize %[[X]] encoder("E2m1EncodePlaced") scale_encoder("E4m3EncodePlaced") : (!kv.mat<n x d, f32>) -> (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>)
  %c, %s:2 = kv.quantize %x encoder("E2m1EncodePlaced")
      scale_encoder("E4m3EncodePlaced") : (!kv.mat<n x d, f32>)
      -> (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>)
  // CHECK: kv.store_codes "k" %[[C]], %[[S]]#0, %[[S]]#1 : !kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>
  kv.store_codes "k" %c, %s#0, %s#1
      : !kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>
  %g = kv.arg_scale "v_scale" : !kv.scale<>
  %y = kv.load_rows "v" : !kv.mat<n x e, f32>
  // CHECK: kv.quantize %{{.*}} given(%{{.*}}) : (!kv.mat<n x e, f32>, !kv.scale<>) -> !kv.codes<n x e, e4m3>
  %d = kv.quantize %y given(%g)
      : (!kv.mat<n x e, f32>, !kv.scale<>) -> !kv.codes<n x e, e4m3>
  // CHECK: kv.store_codes "v" %{{[a-z0-9_]+}} : !kv.codes<n x e, e4m3>
  kv.store_codes "v" %d : !kv.codes<n x e, e4m3>
  // CHECK: kv.yield{{$}}
  kv.yield
}

// CHECK-LABEL: kv.kernel @merge
kv.kernel @merge spec("merge/d64/bf16") {
  // CHECK: %[[O:.*]], %[[L:.*]] = kv.load_partials : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32>
  %o, %l = kv.load_partials : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32>
  // CHECK: kv.merge %[[O]], %[[L]] over(s) : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32> -> !kv.mat<m x e, f32>, !kv.mat<m, f32>
  %r, %t = kv.merge %o, %l over(s)
      : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32>
      -> !kv.mat<m x e, f32>, !kv.mat<m, f32>
  kv.yield %r, %t : !kv.mat<m x e, f32>, !kv.mat<m, f32>
}

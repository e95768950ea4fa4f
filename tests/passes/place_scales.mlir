// RUN: kvforge-opt %s -kv-place-scales | FileCheck %s
// Each row of the table of kv-place-scales, for K (dot over d) and V (dot over
// n). The order of a scale's ops is the test; shapes are checked by verifiers.

// K, over nothing: the scores, beside the softmax scale.
// CHECK-LABEL: kv.kernel @k_nothing
// CHECK: %[[S:.*]] = kv.arg_scale "k_scale"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(d)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_nothing {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s0 = kv.arg_scale "k_scale" : !kv.scale<>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, over the kv head: the scores, beside the softmax scale.
// CHECK-LABEL: kv.kernel @k_head
// CHECK: %[[S:.*]] = kv.arg_scale "k_scale"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(d)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_head {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s0 = kv.arg_scale "k_scale" : !kv.scale<h>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<h>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, over tokens: the scores, per column.
// CHECK-LABEL: kv.kernel @k_token
// CHECK: %[[S:.*]] = kv.load_scale "k"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(d)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_token {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s0 = kv.load_scale "k" : !kv.scale<n>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, over channels: q, before the dot.
// CHECK-LABEL: kv.kernel @k_channel
// CHECK: %[[Q:.*]] = kv.load_q
// CHECK-NEXT: %[[C:.*]] = kv.load_codes "k"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "k"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[QS:.*]] = kv.scale %[[Q]], %[[S]] : !kv.mat<m x d, bf16>, !kv.scale<d> -> !kv.mat<m x d, f32>
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[QS]], %[[K]] reduce(d)
// CHECK-NEXT: kv.yield %[[DOT]]
kv.kernel @k_channel {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s0 = kv.load_scale "k" : !kv.scale<d>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<d>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, over blocks of channels and no token: q, before the dot.
// CHECK-LABEL: kv.kernel @k_channel_block
// CHECK: %[[QS:.*]] = kv.scale %{{.*}}, %{{.*}} : !kv.mat<m x d, bf16>, !kv.scale<d/16> -> !kv.mat<m x d, f32>
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[QS]]
// CHECK-NEXT: kv.yield %[[DOT]]
kv.kernel @k_channel_block {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s0 = kv.load_scale "k" : !kv.scale<d/16>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<d/16>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, over tokens and blocks, e2m1 * e4m3: 2 + 4 significand bits and
// 2^-10 to 2^11 fit f16, so it stays in the operand.
// CHECK-LABEL: kv.kernel @k_block_e4m3
// CHECK: %[[C:.*]] = kv.load_codes "k"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "k"
// CHECK-NEXT: %[[K:.*]] = kv.decode %[[C]], %[[S]] :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(d)
// CHECK-NEXT: kv.yield %[[DOT]]
kv.kernel @k_block_e4m3 {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  %s0 = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, over tokens and blocks, ue8m0: 2^127 * 6 fits neither f16 nor bf16, so the
// dot of each block is scaled in f32, then summed.
// CHECK-LABEL: kv.kernel @k_block_ue8m0
// CHECK: %[[C:.*]] = kv.load_codes "k"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "k"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(d/32) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n x d/32, f32>
// CHECK-NEXT: %[[T:.*]] = kv.scale %[[DOT]], %[[S]] : !kv.mat<m x n x d/32, f32>, !kv.scale<n x d/32, ue8m0> -> !kv.mat<m x n x d/32, f32>
// CHECK-NEXT: %[[R:.*]] = kv.sum %[[T]] over(d/32)
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_block_ue8m0 {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  %s0 = kv.load_scale "k" : !kv.scale<n x d/32, ue8m0>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/32, ue8m0>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, over tokens and blocks, f32: 24 bits fit no operand; as ue8m0, by the same rule.
// CHECK-LABEL: kv.kernel @k_block_f32
// CHECK: %[[DOT:.*]] = kv.dot %{{.*}}, %{{.*}} reduce(d/64)
// CHECK-NEXT: %[[T:.*]] = kv.scale %[[DOT]]
// CHECK-NEXT: %[[R:.*]] = kv.sum %[[T]] over(d/64)
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_block_f32 {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s0 = kv.load_scale "k" : !kv.scale<n x d/64>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n x d/64>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, additive: scores + (sum over d of q) * minimum[n], after the scale.
// CHECK-LABEL: kv.kernel @k_minimum
// CHECK: %[[Q:.*]] = kv.load_q
// CHECK-NEXT: %[[C:.*]] = kv.load_codes "k"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "k" :
// CHECK-NEXT: %[[M:.*]] = kv.load_scale "k" minimum
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[Q]], %[[K]] reduce(d)
// CHECK-NEXT: %[[T:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: %[[SUM:.*]] = kv.sum %[[Q]] over(d)
// CHECK-NEXT: %[[B:.*]] = kv.scale %[[SUM]], %[[M]] : !kv.mat<m, f32>, !kv.scale<n> -> !kv.mat<m x n, f32>
// CHECK-NEXT: %[[R:.*]] = kv.shift %[[T]], %[[B]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_minimum {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, u4>
  %s0 = kv.load_scale "k" : !kv.scale<n>
  %min = kv.load_scale "k" minimum : !kv.scale<n>
  %x = kv.dequant %c scales(%s0) minimum(%min)
      : (!kv.codes<n x d, u4>, !kv.scale<n>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, nvfp4_row: each of two scales goes its own way.
// CHECK-LABEL: kv.kernel @k_two_scales
// CHECK: %[[B:.*]] = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "k" : !kv.scale<n>
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{.*}}, %[[B]]
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(d)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_two_scales {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e2m1>
  %s0 = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>
  %s1 = kv.load_scale "k" : !kv.scale<n>
  %x = kv.dequant %c scales(%s0, %s1)
      : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// K, a row scale beside partial dots: scaled once, behind the sum.
// CHECK-LABEL: kv.kernel @k_partial_then_row
// CHECK: %[[S:.*]] = kv.load_scale "k" : !kv.scale<n>
// CHECK-NEXT: %[[B:.*]] = kv.load_scale "k" : !kv.scale<n x d/32, ue8m0>
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(d/32)
// CHECK-NEXT: %[[T:.*]] = kv.scale %[[DOT]], %[[B]]
// CHECK-NEXT: %[[SUM:.*]] = kv.sum %[[T]] over(d/32)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[SUM]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @k_partial_then_row {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s0 = kv.load_scale "k" : !kv.scale<n>
  %s1 = kv.load_scale "k" : !kv.scale<n x d/32, ue8m0>
  %x = kv.dequant %c scales(%s0, %s1)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>, !kv.scale<n x d/32, ue8m0>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %x reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
}

// V, over nothing: the output.
// CHECK-LABEL: kv.kernel @v_nothing
// CHECK: %[[S:.*]] = kv.arg_scale "v_scale"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(n)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @v_nothing {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %kd = kv.decode %kc : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %kd reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %s0 = kv.arg_scale "v_scale" : !kv.scale<>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x e, e4m3>, !kv.scale<>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %x reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

// V, over the kv head: the output.
// CHECK-LABEL: kv.kernel @v_head
// CHECK: %[[S:.*]] = kv.arg_scale "v_scale"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(n)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @v_head {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %kd = kv.decode %kc : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %kd reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %s0 = kv.arg_scale "v_scale" : !kv.scale<h>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x e, e4m3>, !kv.scale<h>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %x reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

// V, over tokens: p, which the softmax has summed unscaled.
// CHECK-LABEL: kv.kernel @v_token
// CHECK: %[[P:.*]], %{{.*}} = kv.softmax
// CHECK-NEXT: %[[C:.*]] = kv.load_codes "v"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "v"
// CHECK-NEXT: %[[V:.*]] = kv.decode %[[C]] :
// CHECK-NEXT: %[[PS:.*]] = kv.scale %[[P]], %[[S]] : !kv.mat<m x n, f32>, !kv.scale<n> -> !kv.mat<m x n, f32>
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[PS]], %[[V]] reduce(n)
// CHECK-NEXT: kv.yield %[[DOT]]
kv.kernel @v_token {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %kd = kv.decode %kc : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %kd reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %s0 = kv.load_scale "v" : !kv.scale<n>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x e, e4m3>, !kv.scale<n>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %x reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

// V, over channels: the output, per column.
// CHECK-LABEL: kv.kernel @v_channel
// CHECK: %[[S:.*]] = kv.load_scale "v"
// CHECK-NEXT: %[[K:.*]] = kv.decode %{{[0-9]+}} :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[K]] reduce(n)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %[[S]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @v_channel {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %kd = kv.decode %kc : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %kd reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %s0 = kv.load_scale "v" : !kv.scale<e>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x e, e4m3>, !kv.scale<e>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %x reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

// V, over tokens and blocks, e4m3: exact in the operand.
// CHECK-LABEL: kv.kernel @v_block_e4m3
// CHECK: %[[C:.*]] = kv.load_codes "v"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "v"
// CHECK-NEXT: %[[V:.*]] = kv.decode %[[C]], %[[S]] :
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %{{.*}}, %[[V]] reduce(n)
// CHECK-NEXT: kv.yield %[[DOT]]
kv.kernel @v_block_e4m3 {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %kd = kv.decode %kc : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %kd reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, e2m1>
  %s0 = kv.load_scale "v" : !kv.scale<n x e/16, e4m3>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x e, e2m1>, !kv.scale<n x e/16, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %x reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

// V, over tokens and blocks, ue8m0: p, per block of output columns.
// CHECK-LABEL: kv.kernel @v_block_ue8m0
// CHECK: %[[P:.*]], %{{.*}} = kv.softmax
// CHECK-NEXT: %[[C:.*]] = kv.load_codes "v"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "v"
// CHECK-NEXT: %[[V:.*]] = kv.decode %[[C]] :
// CHECK-NEXT: %[[PS:.*]] = kv.scale %[[P]], %[[S]] : !kv.mat<m x n, f32>, !kv.scale<n x e/32, ue8m0> -> !kv.mat<m x n x e/32, f32>
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[PS]], %[[V]] reduce(n) : !kv.mat<m x n x e/32, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
// CHECK-NEXT: kv.yield %[[DOT]]
kv.kernel @v_block_ue8m0 {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %kd = kv.decode %kc : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %kd reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %s0 = kv.load_scale "v" : !kv.scale<n x e/32, ue8m0>
  %x = kv.dequant %c scales(%s0)
      : (!kv.codes<n x e, e4m3>, !kv.scale<n x e/32, ue8m0>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %x reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

// V, additive: output + sum over n of p * minimum, p without the scale.
// CHECK-LABEL: kv.kernel @v_minimum
// CHECK: %[[P:.*]], %{{.*}} = kv.softmax
// CHECK-NEXT: %[[C:.*]] = kv.load_codes "v"
// CHECK-NEXT: %[[S:.*]] = kv.load_scale "v" :
// CHECK-NEXT: %[[M:.*]] = kv.load_scale "v" minimum
// CHECK-NEXT: %[[V:.*]] = kv.decode %[[C]] :
// CHECK-NEXT: %[[PS:.*]] = kv.scale %[[P]], %[[S]]
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[PS]], %[[V]] reduce(n)
// CHECK-NEXT: %[[PM:.*]] = kv.scale %[[P]], %[[M]]
// CHECK-NEXT: %[[SUM:.*]] = kv.sum %[[PM]] over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
// CHECK-NEXT: %[[R:.*]] = kv.shift %[[DOT]], %[[SUM]]
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @v_minimum {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %kc = kv.load_codes "k" : !kv.codes<n x d, bf16>
  %kd = kv.decode %kc : (!kv.codes<n x d, bf16>) -> !kv.mat<n x d, f32>
  %s = kv.dot %q, %kd reduce(d) : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %s over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %c = kv.load_codes "v" : !kv.codes<n x e, u4>
  %s0 = kv.load_scale "v" : !kv.scale<n>
  %min = kv.load_scale "v" minimum : !kv.scale<n>
  %x = kv.dequant %c scales(%s0) minimum(%min)
      : (!kv.codes<n x e, u4>, !kv.scale<n>, !kv.scale<n>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %x reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

// The dequantized side may be the left one.
// CHECK-LABEL: kv.kernel @left
// CHECK: %[[K:.*]] = kv.decode
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[K]], %{{.*}} reduce(d)
// CHECK-NEXT: %[[R:.*]] = kv.scale %[[DOT]], %{{.*}} : !kv.mat<n x m, f32>, !kv.scale<n>
// CHECK-NEXT: kv.yield %[[R]]
kv.kernel @left {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "k" : !kv.scale<n>
  %k = kv.dequant %c scales(%s)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  %o = kv.dot %k, %q reduce(d)
      : !kv.mat<n x d, f32>, !kv.mat<m x d, bf16> -> !kv.mat<n x m, f32>
  kv.yield %o : !kv.mat<n x m, f32>
}

// Rows that are written, not multiplied: the dequant stays whole.
// CHECK-LABEL: kv.kernel @written
// CHECK: %[[R:.*]] = kv.dequant %{{.*}} scales(%{{.*}}) : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
// CHECK-NEXT: kv.store_rows "k" %[[R]]
kv.kernel @written {
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "k" : !kv.scale<n>
  %r = kv.dequant %c scales(%s)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n>) -> !kv.mat<n x d, f32>
  kv.store_rows "k" %r : !kv.mat<n x d, f32>
  kv.yield
}

// RUN: kvforge-opt %s -kv-lower-codec=gpu=sm_90 | FileCheck %s

// Codes of an fp8 dot stay as they are; q gets their type, with a factor a row,
// and so do weights. Nothing is owed.
// CHECK-LABEL: kv.kernel @fp8
// CHECK: %[[Q:.*]] = kv.load_q
// CHECK: %[[K:.*]] = kv.decode %{{.*}} sequence("E4m3Operand") : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, e4m3>
// CHECK-NEXT: %[[QN:.*]] = kv.narrow %[[Q]] row_scaled : !kv.mat<m x d, bf16> -> !kv.mat<m x d, e4m3>
// CHECK-NEXT: %[[DOT:.*]] = kv.dot %[[QN]], %[[K]] reduce(d) : !kv.mat<m x d, e4m3>, !kv.mat<n x d, e4m3> -> !kv.mat<m x n, f32>
// CHECK-NEXT: %[[P:.*]], %{{.*}} = kv.softmax %[[DOT]]
// CHECK: %[[V:.*]] = kv.decode %{{.*}} sequence("E4m3Operand") : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, e4m3>
// CHECK-NEXT: %[[PN:.*]] = kv.narrow %[[P]] row_scaled : !kv.mat<m x n, f32> -> !kv.mat<m x n, e4m3>
// CHECK-NEXT: %[[O:.*]] = kv.dot %[[PN]], %[[V]] reduce(n)
// CHECK-NEXT: kv.yield %[[O]]
kv.kernel @fp8 spec("extend/e4m3_tensor/d128/g4/page16/bf16/compute=fp8") {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f32>
  %dot = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  %p, %lse = kv.softmax %dot over(n) : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
  %e = kv.load_codes "v" : !kv.codes<n x e, e4m3>
  %v = kv.decode %e : (!kv.codes<n x e, e4m3>) -> !kv.mat<n x e, f32>
  %o = kv.dot %p, %v reduce(n)
      : !kv.mat<m x n, f32>, !kv.mat<n x e, f32> -> !kv.mat<m x e, f32>
  kv.yield %o : !kv.mat<m x e, f32>
}

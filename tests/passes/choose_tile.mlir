// RUN: kvforge-opt %s -kv-choose-tile="gpu=sm_80" | FileCheck %s --check-prefix=CHOSEN
// RUN: kvforge-opt %s -kv-choose-tile="gpu=sm_80 tile=16x32/2/2" | FileCheck %s --check-prefix=GIVEN

// Without a tile the selector chooses, the option wins over what is there, and
// what is there wins over the selector.
// CHOSEN: kv.kernel @free spec("decode/e4m3_row/d128/g4/page16/bf16") tile("{{[0-9]+x[0-9]+/[0-9]+/[0-9]+}}") {
// CHOSEN: kv.kernel @kept spec("decode/e4m3_row/d128/g4/page16/bf16") tile("8x64/3/4") {
// GIVEN: kv.kernel @free spec("decode/e4m3_row/d128/g4/page16/bf16") tile("16x32/2/2") {
// GIVEN: kv.kernel @kept spec("decode/e4m3_row/d128/g4/page16/bf16") tile("16x32/2/2") {
kv.kernel @free spec("decode/e4m3_row/d128/g4/page16/bf16") {
  kv.yield
}
kv.kernel @kept spec("decode/e4m3_row/d128/g4/page16/bf16") tile("8x64/3/4") {
  kv.yield
}

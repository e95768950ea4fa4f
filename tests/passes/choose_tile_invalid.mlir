// RUN: kvforge-opt %s -split-input-file -verify-diagnostics -kv-choose-tile=gpu=sm_86

// expected-error @below {{kv.kernel has no spec}}
kv.kernel @no_spec {
  kv.yield
}

// -----

// expected-error @below {{tile '8' cannot be read; supported: BLOCK_MxBLOCK_N/STAGES/WARPS}}
kv.kernel @unreadable spec("decode/bf16/d128/g4/page16/bf16") tile("8") {
  kv.yield
}

// -----

// A step of decode is 16 keys a warp.
// expected-error @below {{tile 8x32/3/4 of decode/bf16/d128/g4/page16/bf16 is no shape of this kernel; supported: block_m = 8 or 16, block_n = 16 * warps}}
kv.kernel @shape spec("decode/bf16/d128/g4/page16/bf16") tile("8x32/3/4") {
  kv.yield
}

// -----

// 4 warps * 8 stages * 16 keys * 2 * 512 channels * 2 bytes = 1 MiB.
// expected-error-re @below {{tile 8x64/8/4 of decode/bf16/d512/g4/page16/bf16 needs {{[0-9]+}} bytes of shared memory, sm_86 has 101376 for a block}}
kv.kernel @large spec("decode/bf16/d512/g4/page16/bf16") tile("8x64/8/4") {
  kv.yield
}

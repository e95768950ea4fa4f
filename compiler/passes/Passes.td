// The passes of kv, each on one kv.kernel, in the order of pipeline.cc.
#ifndef KVFORGE_COMPILER_PASSES_PASSES_TD_
#define KVFORGE_COMPILER_PASSES_PASSES_TD_

include "mlir/Pass/PassBase.td"

def Kv_GpuOption : Option<"gpu", "gpu", "std::string", "",
    "GPU that the text is for, such as sm_89">;

def KvVerifyTarget : Pass<"kv-verify-target", "::kvforge::kv::KernelOp"> {
  let summary = "refuse what this GPU or kernel cannot serve";
  let description = [{
    Before: any kernel with a `spec`. After: unchanged. Runs first, so that a
    refusal names the format, feature or GPU and not a consequence of it.
    Fails, once per cause, if the GPU is unknown or not served, if the spec
    cannot be read or names a format or feature that no kernel serves, if the
    GPU has no products that the spec computes with, or if an element has no
    decode or encode function on this GPU.
  }];
  let options = [Kv_GpuOption];
}

def KvPlaceScales : Pass<"kv-place-scales", "::kvforge::kv::KernelOp"> {
  let summary = "dequant-on-dot: move scales off the operands of a dot";
  let description = [{
    Before: `kv.dequant` with any scales, used by `kv.dot` only, or by
    `kv.store_rows` only, which stays as it is. After: no other `kv.dequant`; each is a `kv.decode`, and its scales are where the
    dimensions they vary over allow, for a dot over r:

    | scale has | goes to |
    |---|---|
    | not r | the dot's result |
    | r only | the other operand, before the dot |
    | r and another, exact with the codes in 16 bits | the operand itself |
    | blocks of r and another | the partial dot of each block |
    | r and blocks of another | the other operand, per block of that other |
    | the minimum | the result: + (sum over r of other operand * minimum) |

    h counts for nothing. Runs before `kv-lower-codec`. Fails on a dequant that
    another op uses and on a scale with one value per element.
  }];
}

def KvLowerCodec : Pass<"kv-lower-codec", "::kvforge::kv::KernelOp"> {
  let summary = "choose the exact decode and encode functions of this GPU";
  let description = [{
    Before: `kv.decode` to f32, `kv.quantize` without encoders. After: every
    decode has the 16-bit operand type, a `sequence` and with a block scale a
    `scale_sequence`; the dot's other operand is narrowed to that type,
    `row_scaled` if f16 might not hold it; the power of two that the functions
    leave behind is a `kv.const_scale` next to the nearest uniform scale after
    the dot. With compute=fp8 the operand type is the codes' own, and both other
    operands are narrowed to it. Every quantize has its encoders, every dequant that is left (of
    `kv.store_rows`) its `sequence`. Runs after `kv-place-scales`.
    Fails if no function of this GPU is exact.
  }];
  let options = [Kv_GpuOption];
}

def KvChooseTile : Pass<"kv-choose-tile", "::kvforge::kv::KernelOp"> {
  let summary = "the tile, from the option or from the memory model";
  let description = [{
    Before: a kernel with a `spec`. After: `tile` is set: to the option, else
    to what it was, else to the selector's choice. Fails if that tile has not
    the shape of the kernel's template, or does not fit the GPU's shared memory
    and registers, or if no tile does.
  }];
  let options = [Kv_GpuOption, Option<"tile", "tile", "std::string", "",
      "tile to take, such as 128x64/2/8; empty: choose">];
}

def KvEmitCuda : Pass<"kv-emit-cuda", "::kvforge::kv::KernelOp"> {
  let summary = "print each kernel's CUDA C++ to standard output";
  let description = [{
    Before: a kernel that all other passes have seen. After: unchanged. For
    tests of the emitter; the compiler calls EmitCuda instead. Fails on IR that
    no template can serve, by name.
  }];
  let options = [Kv_GpuOption];
}

#endif  // KVFORGE_COMPILER_PASSES_PASSES_TD_

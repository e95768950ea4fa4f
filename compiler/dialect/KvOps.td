// Operations of kv: the kernel, attention, and (KvStoreOps.td) storing and merging.
// One example of each is a line of tests/dialect/roundtrip.mlir.
// Dimension names are explained in KvTypes.td, their algebra in kv_shapes.h.
#ifndef KVFORGE_COMPILER_DIALECT_KVOPS_TD_
#define KVFORGE_COMPILER_DIALECT_KVOPS_TD_

include "compiler/dialect/KvTypes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Kv_KernelOp : Kv_Op<"kernel", [IsolatedFromAbove, Symbol, SingleBlock]> {
  let summary = "one kernel: a graph of kv operations and its SPEC";
  let description = [{
    `spec` is the canonical SPEC (compiler/spec/kernel_spec.h): the sizes, types
    and page size that the graph does not show. The builder writes it; passes
    that need no size run without it. `tile` (compiler/tile/tile.h) is absent
    until `kv-choose-tile` sets it. The body ends in `kv.yield`.
    Example:
    ```mlir
    kv.kernel @decode spec("decode/bf16/d64/g1/page16/bf16") {
      ...
      kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$spec,
                       OptionalAttr<StrAttr>:$tile);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name (`spec` `(` $spec^ `)`)? (`tile` `(` $tile^ `)`)?
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
}

def Kv_YieldOp : Kv_Op<"yield", [Pure, Terminator, HasParent<"KernelOp">]> {
  let summary = "what a kernel computes";
  let description = [{
    decode, extend and merge yield the output `m x e` and the natural-log LSE
    `m`, both f32; conversion to the SPEC's output type is the template's. A
    store yields nothing.
    Example: `kv.yield %o, %lse : !kv.mat<m x e, f32>, !kv.mat<m, f32>`
  }];
  let arguments = (ins Variadic<Kv_Mat>:$results);
  let assemblyFormat = "($results^ `:` qualified(type($results)))? attr-dict";
}

//===- Reading --------------------------------------------------------------===//

def Kv_LoadQOp : Kv_Op<"load_q", [Pure]> {
  let summary = "the query rows";
  let description = [{
    `result[m, d] = q[token(m), head(m), d]`, in the query's own type: f32, bf16
    or f16.
    Example: `%q = kv.load_q : !kv.mat<m x d, bf16>`
  }];
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = "attr-dict `:` qualified(type($result))";
  let hasVerifier = 1;
}

def Kv_LoadCodesOp : Kv_Op<"load_codes", [Pure]> {
  let summary = "the codes of one side of the cache, through the page table";
  let description = [{
    `result[n, c] = codes[page(n), slot(n), kv head, c]`, `c` = d for "k" and e
    for "v". Codes beyond kv_len may be anything; `kv.mask` keeps them out.
    Example: `%c = kv.load_codes "k" : !kv.codes<n x d, e4m3>`
  }];
  let arguments = (ins Kv_Side:$side);
  let results = (outs Kv_Codes:$result);
  let assemblyFormat = "$side attr-dict `:` qualified(type($result))";
  let hasVerifier = 1;
}

def Kv_LoadScaleOp : Kv_Op<"load_scale", [Pure]> {
  let summary = "scales or minima stored beside the codes";
  let description = [{
    One per token (`n`), per channel, or per token and block of channels. With
    `minimum` the values are added after scaling (asymmetric formats), not
    multiplied. Beyond kv_len they may be anything, NaN and Inf included.
    Example: `%s = kv.load_scale "k" : !kv.scale<n x d/16, e4m3>`
    Example: `%m = kv.load_scale "k" minimum : !kv.scale<n>`
  }];
  let arguments = (ins Kv_Side:$side, UnitAttr:$minimum);
  let results = (outs Kv_Scale:$result);
  let assemblyFormat = [{
    $side (`minimum` $minimum^)? attr-dict `:` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Kv_ArgScaleOp : Kv_Op<"arg_scale", [Pure]> {
  let summary = "a scale handed in at launch";
  let description = [{
    `argument` is sm_scale, k_scale or v_scale. One value (`!kv.scale<>`), one
    per kv head (`!kv.scale<h>`) or one per kv head and channel of its side
    (`!kv.scale<h x d>`), f32.
    Example: `%s = kv.arg_scale "sm_scale" : !kv.scale<>`
  }];
  let arguments = (ins StrAttr:$argument);
  let results = (outs Kv_Scale:$result);
  let assemblyFormat = "$argument attr-dict `:` qualified(type($result))";
  let hasVerifier = 1;
}

def Kv_ConstScaleOp : Kv_Op<"const_scale", [Pure]> {
  let summary = "a power of two known at compile time";
  let description = [{
    `result = 2^exponent`, exponent in [-126, 127], so that scaling by it is
    exact. `kv-lower-codec` writes these to repay what a decode left behind.
    Example: `%c = kv.const_scale exp2(8) : !kv.scale<>`
  }];
  let arguments = (ins I64Attr:$exponent);
  let results = (outs Kv_Scale:$result);
  let assemblyFormat = [{
    `exp2` `(` $exponent `)` attr-dict `:` qualified(type($result))
  }];
  let hasVerifier = 1;
}

//===- Codes to numbers -----------------------------------------------------===//

def Kv_DequantOp : Kv_Op<"dequant", [Pure, AttrSizedOperandSegments]> {
  let summary = "what the codes stand for";
  let description = [{
    `result[n, c] = value(codes[n, c]) * product of scales + minimum`, each
    scale read at the dimensions it has. The result is f32 in meaning only:
    `kv-place-scales` removes every dequant of a dot before anything is computed.
    One whose rows are written (`kv.store_rows`) stays: `kv-lower-codec` sets
    `sequence`, the device function that decodes its codes.
    Example:
    ```mlir
    %k = kv.dequant %c scales(%b, %s)
        : (!kv.codes<n x d, e2m1>, !kv.scale<n x d/16, e4m3>, !kv.scale<n>)
        -> !kv.mat<n x d, f32>
    ```
  }];
  let arguments = (ins Kv_Codes:$codes, Variadic<Kv_Scale>:$scales,
                       Optional<Kv_Scale>:$minimum,
                       OptionalAttr<StrAttr>:$sequence);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $codes (`scales` `(` $scales^ `)`)? (`minimum` `(` $minimum^ `)`)?
    (`sequence` `(` $sequence^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Kv_DecodeOp : Kv_Op<"decode", [Pure]> {
  let summary = "codes as an operand of a dot, exactly";
  let description = [{
    `result[n, c] = value(codes[n, c]) * block_scale * 2^-repay`. Until
    `kv-lower-codec` the result is f32 and repay is 0; then it has the operand
    type, `sequence` and `scale_sequence` name the device functions that decode
    codes and block scales, and the powers of two that these leave behind are
    repaid after the dot. Codes of an fp8 dot stay as they are. NaN codes give
    NaN.
    Example:
    ```mlir
    %k = kv.decode %c sequence("E4m3ToF16Placed4")
        : (!kv.codes<n x d, e4m3>) -> !kv.mat<n x d, f16>
    ```
  }];
  let arguments = (ins Kv_Codes:$codes, Optional<Kv_Scale>:$block_scale,
                       OptionalAttr<StrAttr>:$sequence,
                       OptionalAttr<StrAttr>:$scale_sequence);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $codes (`,` $block_scale^)? (`sequence` `(` $sequence^ `)`)?
    (`scale_sequence` `(` $scale_sequence^ `)`)?
    attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

//===- Arithmetic -----------------------------------------------------------===//

def Kv_NarrowOp : Kv_Op<"narrow", [Pure]> {
  let summary = "to the type of a dot's operands";
  let description = [{
    Rounds to nearest even. With `row_scaled` a row is first multiplied by a
    factor, a power of two for 16-bit types, that brings it into the type's
    range and that the template repays on the dot's result; without, the values
    are known to fit.
    Example: `%t = kv.narrow %q row_scaled : !kv.mat<m x d, bf16> -> !kv.mat<m x d, f16>`
  }];
  let arguments = (ins Kv_Mat:$input, UnitAttr:$row_scaled);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $input (`row_scaled` $row_scaled^)? attr-dict
    `:` qualified(type($input)) `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Kv_DotOp : Kv_Op<"dot", [Pure]> {
  let summary = "contraction over one dimension, accumulated in f32";
  let description = [{
    `result = sum over reduce of lhs * rhs`. Both sides have the whole
    dimension. `reduce(d/32)` sums within each block of 32 and keeps `d/32`. A
    dimension that the left has in blocks and the right has whole (`e/32`, `e`)
    is matched, not contracted.
    Example:
    ```mlir
    %s = kv.dot %q, %k reduce(d)
        : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
    ```
  }];
  let arguments = (ins Kv_Mat:$lhs, Kv_Mat:$rhs, StrAttr:$reduce);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs `reduce` `(` custom<DimName>($reduce) `)` attr-dict
    `:` qualified(type($lhs)) `,` qualified(type($rhs))
    `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Kv_ScaleOp : Kv_Op<"scale", [Pure]> {
  let summary = "multiplication by a scale";
  let description = [{
    `result = input * scale`, the scale read at the dimensions it has; in f32,
    rounded once. Dimensions that only the scale has are appended.
    Example:
    ```mlir
    %t = kv.scale %s, %ks
        : !kv.mat<m x n, f32>, !kv.scale<n> -> !kv.mat<m x n, f32>
    ```
  }];
  let arguments = (ins Kv_Mat:$input, Kv_Scale:$scale);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $input `,` $scale attr-dict
    `:` qualified(type($input)) `,` qualified(type($scale))
    `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Kv_SumOp : Kv_Op<"sum", [Pure]> {
  let summary = "sum over one dimension, in f32";
  let description = [{
    `result = sum over dim of input`; `dim` is spelled as the input has it
    (`d/32` adds partial dots).
    Example: `%t = kv.sum %q over(d) : !kv.mat<m x d, bf16> -> !kv.mat<m, f32>`
  }];
  let arguments = (ins Kv_Mat:$input, StrAttr:$dim);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $input `over` `(` custom<DimName>($dim) `)` attr-dict
    `:` qualified(type($input)) `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Kv_ShiftOp : Kv_Op<"shift", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "addition of a value that varies over fewer dimensions";
  let description = [{
    `result = input + addend`, f32. The addend's dimensions are among the
    input's. Carries the minimum of an asymmetric format past a dot.
    Example: `%t = kv.shift %s, %b : !kv.mat<m x n, f32>, !kv.mat<m, f32>`
  }];
  let arguments = (ins Kv_Mat:$input, Kv_Mat:$addend);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $input `,` $addend attr-dict
    `:` qualified(type($input)) `,` qualified(type($addend))
  }];
  let hasVerifier = 1;
}

def Kv_MapOp : Kv_Op<"map", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "a function of each score";
  let description = [{
    One of three. `softcap(c)`: `result = c * tanh(input / c)`, c > 0 and finite;
    finite for every finite input. `alibi`: `result[m, n] = input[m, n] +
    alibi_slopes[head(m)] * (j - i)` for key j and query position i = kv_len -
    q_len + t, natural units. `score`: `result[m, n] = function(input[m, n], i,
    j, head(m))`, one block of the operations of score_ops.h that ends in
    `kv.return`. Comes after scaling and before masking; alibi and score last.
    Example:
    ```mlir
    %t = kv.map %s softcap(3.000000e+01) : !kv.mat<m x n, f32>
    %u = kv.map %t alibi : !kv.mat<m x n, f32>
    %v = kv.map %s score {
    ^bb0(%score: f32, %i: i32, %j: i32, %head: i32):
      %x = math.tanh %score : f32
      kv.return %x
    } : !kv.mat<m x n, f32>
    ```
  }];
  let arguments = (ins Kv_Mat:$input, OptionalAttr<F32Attr>:$softcap,
                       UnitAttr:$alibi);
  let regions = (region AnyRegion:$score);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $input (`softcap` `(` $softcap^ `)`)? (`alibi` $alibi^)?
    (`score` $score^)? attr-dict `:` qualified(type($input))
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Kv_ReturnOp : Kv_Op<"return", [Pure, Terminator, HasParent<"MapOp">]> {
  let summary = "the score that a score function gives";
  let description = [{
    Example: `kv.return %x`
  }];
  let arguments = (ins F32:$score);
  let assemblyFormat = "$score attr-dict";
}

def Kv_MaskOp : Kv_Op<"mask", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "which keys a query row sees";
  let description = [{
    Replaces the score of an invisible key by -inf. Key j of kv_len is visible to
    query t of q_len, at position i = kv_len - q_len + t, iff j < kv_len, with
    `causal` j <= i, with `custom` (never both) bit t * kv_len + j of the
    sequence's mask is 1, with `window(W)` j > i - W, with `selected(B)` block
    j / B is in the list of the kv head. A row may see no key; keys that are not
    selected are not read.
    Example:
    ```mlir
    %t = kv.mask %s causal window(4096) : !kv.mat<m x n, f32>
    %u = kv.mask %s custom selected(16) : !kv.mat<m x n, f32>
    ```
  }];
  let arguments = (ins Kv_Mat:$input, UnitAttr:$causal, UnitAttr:$custom,
                       OptionalAttr<I64Attr>:$window,
                       OptionalAttr<I64Attr>:$selected);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = [{
    $input (`causal` $causal^)? (`custom` $custom^)?
    (`window` `(` $window^ `)`)? (`selected` `(` $selected^ `)`)? attr-dict
    `:` qualified(type($input))
  }];
  let hasVerifier = 1;
}

def Kv_SoftmaxOp : Kv_Op<"softmax", [Pure, AllTypesMatch<["scores", "weights"]>]> {
  let summary = "weights and log-sum-exp of each row";
  let description = [{
    `weights[m, n] = exp(scores[m, n]) / sum`, `lse[m] = log(sum)`, natural. With
    `sinks` one raw logit per q head joins the sum once per row. A row without a
    visible key has weights 0 and lse -inf, or the sink.
    Example:
    ```mlir
    %p, %lse = kv.softmax %s over(n) sinks
        : !kv.mat<m x n, f32> -> !kv.mat<m, f32>
    ```
  }];
  let arguments = (ins Kv_Mat:$scores, StrAttr:$dim, UnitAttr:$sinks);
  let results = (outs Kv_Mat:$weights, Kv_Mat:$lse);
  let assemblyFormat = [{
    $scores `over` `(` custom<DimName>($dim) `)` (`sinks` $sinks^)? attr-dict
    `:` qualified(type($scores)) `->` qualified(type($lse))
  }];
  let hasVerifier = 1;
}

include "compiler/dialect/KvStoreOps.td"

#endif  // KVFORGE_COMPILER_DIALECT_KVOPS_TD_

// Operations of the store and merge kernels; part of KvOps.td.
#ifndef KVFORGE_COMPILER_DIALECT_KVSTOREOPS_TD_
#define KVFORGE_COMPILER_DIALECT_KVSTOREOPS_TD_

include "compiler/dialect/KvTypes.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===- Storing --------------------------------------------------------------===//

def Kv_LoadRowsOp : Kv_Op<"load_rows", [Pure]> {
  let summary = "fresh rows that a store quantizes";
  let description = [{
    `result[n, c]` of the token and kv head that slot n belongs to, in the
    source type.
    Example: `%x = kv.load_rows "k" : !kv.mat<n x d, bf16>`
  }];
  let arguments = (ins Kv_Side:$side);
  let results = (outs Kv_Mat:$result);
  let assemblyFormat = "$side attr-dict `:` qualified(type($result))";
  let hasVerifier = 1;
}

def Kv_QuantizeOp : Kv_Op<"quantize", [Pure]> {
  let summary = "codes of rows and the scales found for them";
  let description = [{
    Each row depends on itself and on `given` alone; IEEE division, one rounding
    (REQUIREMENTS, "Row quantization"). The results' types name the rule: codes,
    then the scales to store. A 16-bit element rounds the source to nearest
    even. `encoder` and `scale_encoder` are absent until `kv-lower-codec` names
    the device functions that encode codes and block scales; a 16-bit element
    never has one.
    Example:
    ```mlir
    %c, %s = kv.quantize %x
        : (!kv.mat<n x d, bf16>) -> (!kv.codes<n x d, e4m3>, !kv.scale<n>)
    ```
  }];
  let arguments = (ins Kv_Mat:$rows, Optional<Kv_Scale>:$given,
                       OptionalAttr<StrAttr>:$encoder,
                       OptionalAttr<StrAttr>:$scale_encoder);
  let results = (outs Kv_Codes:$codes, Variadic<Kv_Scale>:$scales);
  let assemblyFormat = [{
    $rows (`given` `(` $given^ `)`)? (`encoder` `(` $encoder^ `)`)?
    (`scale_encoder` `(` $scale_encoder^ `)`)?
    attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Kv_StoreCodesOp : Kv_Op<"store_codes"> {
  let summary = "scatter of codes and scales into the cache";
  let description = [{
    Row n goes to page slot[n] / page size, offset slot[n] % page size. A
    negative slot touches nothing. Slots are distinct.
    Example:
    ```mlir
    kv.store_codes "k" %c, %s : !kv.codes<n x d, e4m3>, !kv.scale<n>
    ```
  }];
  let arguments = (ins Kv_Side:$side, Kv_Codes:$codes, Variadic<Kv_Scale>:$scales);
  let assemblyFormat = [{
    $side $codes (`,` $scales^)? attr-dict
    `:` qualified(type($codes)) (`,` qualified(type($scales))^)?
  }];
  let hasVerifier = 1;
}

//===- Gathering -----------------------------------------------------------===//

def Kv_StoreRowsOp : Kv_Op<"store_rows"> {
  let summary = "dequantized rows of the cache to dense memory";
  let description = [{
    Row n of side "k" or "v" is that of slot[n] and goes to the n-th row of the
    side's output, f32 rounded once more to the SPEC's type. A slot that does not
    exist gives zeros. K has channels d, V e.
    Example: `kv.store_rows "k" %k : !kv.mat<n x d, f32>`
  }];
  let arguments = (ins Kv_Side:$side, Kv_Mat:$rows);
  let assemblyFormat = "$side $rows attr-dict `:` qualified(type($rows))";
  let hasVerifier = 1;
}

//===- Merging --------------------------------------------------------------===//

def Kv_LoadPartialsOp : Kv_Op<"load_partials", [Pure]> {
  let summary = "partial outputs and their log-sum-exp";
  let description = [{
    One output row and one natural-log LSE per split. A split without a visible
    key has output 0 and LSE -inf.
    Example:
    ```mlir
    %o, %l = kv.load_partials : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32>
    ```
  }];
  let results = (outs Kv_Mat:$out, Kv_Mat:$lse);
  let assemblyFormat = [{
    attr-dict `:` qualified(type($out)) `,` qualified(type($lse))
  }];
  let hasVerifier = 1;
}

def Kv_MergeOp : Kv_Op<"merge", [Pure]> {
  let summary = "one attention state from partial ones";
  let description = [{
    `lse' = log(sum over s of exp(lse[s]))`,
    `out' = sum over s of exp(lse[s] - lse') * out[s]`; all splits empty: 0 and
    -inf.
    Example:
    ```mlir
    %r, %t = kv.merge %o, %l over(s)
        : !kv.mat<s x m x e, f32>, !kv.mat<s x m, f32>
        -> !kv.mat<m x e, f32>, !kv.mat<m, f32>
    ```
  }];
  let arguments = (ins Kv_Mat:$out, Kv_Mat:$lse, StrAttr:$dim);
  let results = (outs Kv_Mat:$merged_out, Kv_Mat:$merged_lse);
  let assemblyFormat = [{
    $out `,` $lse `over` `(` custom<DimName>($dim) `)` attr-dict
    `:` qualified(type($out)) `,` qualified(type($lse))
    `->` qualified(type($merged_out)) `,` qualified(type($merged_lse))
  }];
  let hasVerifier = 1;
}

#endif  // KVFORGE_COMPILER_DIALECT_KVSTOREOPS_TD_

// Dialect and types of kv, and what its operations (KvOps.td) share.
#ifndef KVFORGE_COMPILER_DIALECT_KVTYPES_TD_
#define KVFORGE_COMPILER_DIALECT_KVTYPES_TD_

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Kv_Dialect : Dialect {
  let name = "kv";
  let cppNamespace = "::kvforge::kv";
  let summary = "attention over a quantized key/value cache, without tiles";
  let description = [{
    A kernel is a small graph over rows and matrices whose dimensions have
    names instead of sizes:

    | name | meaning |
    |---|---|
    | m | query rows: (token, q head of the group) |
    | n | keys |
    | d | channels of q and K |
    | e | channels of V and of the output |
    | h | kv head |
    | s | partial results (splits) of one output row |

    `d/16` is a dimension with one entry per 16 neighbours of `d`.
  }];
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = [{ void RegisterTypes(); }];
}

class Kv_Type<string name, string mnemonic_> : TypeDef<Kv_Dialect, name> {
  let mnemonic = mnemonic_;
  let parameters = (ins ArrayRefParameter<"::kvforge::kv::Dim">:$dims,
                        "::kvforge::kv::ElementKind":$element);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Kv_Mat : Kv_Type<"Mat", "mat"> {
  let summary = "numbers that take part in arithmetic";
  let description = [{
    `!kv.mat<m x d, bf16>`. Elements: f32, bf16, f16, and e4m3 of operands of
    an fp8 dot. At least one dimension.
    A dimension that appears twice, whole and in blocks (`e` and `e/32`), is
    refused: the value varies over it once.
  }];
}

def Kv_Codes : Kv_Type<"Codes", "codes"> {
  let summary = "stored codes of one side of the cache";
  let description = [{
    `!kv.codes<n x d, e4m3>`: tokens by channels. Elements: bf16, f16, e4m3,
    e5m2, e2m1, i8, u4. Their values without any scale.
  }];
}

def Kv_Scale : Kv_Type<"Scale", "scale"> {
  let summary = "factors, or minima, by the dimensions they vary over";
  let description = [{
    `!kv.scale<>` one value, `!kv.scale<n>` one per token, `!kv.scale<h>` one
    per kv head, `!kv.scale<n x d/16, e4m3>` one per token and 16 channels.
    The element is f32 unless written: f32, e4m3, ue8m0.
  }];
}

class Kv_Op<string mnemonic, list<Trait> traits = []>
    : Op<Kv_Dialect, mnemonic, traits>;

def Kv_Side : StringBasedAttr<
    CPred<"::llvm::is_contained({\"k\", \"v\"}, "
          "::llvm::cast<::mlir::StringAttr>($_self).getValue())">,
    "side of the cache, \"k\" or \"v\""> {
  let storageType = "::mlir::StringAttr";
  let returnType = "::llvm::StringRef";
}

#endif  // KVFORGE_COMPILER_DIALECT_KVTYPES_TD_

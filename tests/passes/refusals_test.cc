// Each layer that refuses, called directly: its sentence is its own, so that a
// message tells where a request was stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "compiler/dialect/kv_dialect.h"
#include "compiler/formats/format.h"
#include "compiler/passes/passes.h"
#include "compiler/spec/kernel_spec.h"
#include "compiler/target/target.h"
#include "compiler/tile/tile_selector.h"
#include "kernels/argument_checks.h"
#include "kernels/cache_geometry.h"
#include "kernels/extend.h"
#include "kernels/jit_loader.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/kernel_store.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Refusal {
  const char* layer;
  absl::StatusCode code;
  const char* sentence;  // of this layer alone
  std::function<absl::Status()> ask;
};

const KvFormat& Format(const char* name) { return **FindFormat(name); }

GpuTarget TinyGpu() {
  GpuTarget gpu = **FindTarget("sm_86");
  gpu.shared_bytes_opt_in = 8000;
  return gpu;
}

// The diagnostic of a pass on a kernel's text.
absl::Status RunPass(std::unique_ptr<mlir::Pass> pass, const char* text) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<kv::KvDialect>();
  std::string message;
  const mlir::ScopedDiagnosticHandler handler(
      &context,
      [&](mlir::Diagnostic& diagnostic) { message += diagnostic.str(); });
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) return absl::InternalError("the text does not parse");
  mlir::PassManager manager(&context);
  manager.addNestedPass<kv::KernelOp>(std::move(pass));
  if (mlir::succeeded(manager.run(*module))) return absl::OkStatus();
  return absl::InvalidArgumentError(message);
}

KernelRequest Request() {
  KernelRequest request;
  request.key.spec = "merge/d64/f32";
  request.key.tile = "8x0/1/8";
  request.key.arch = "sm_90a";
  request.target = "cuda";
  request.gpu = "sm_90";
  return request;
}

std::vector<Refusal> Refusals() {
  using Code = absl::StatusCode;
  return {
      {"SPEC parser", Code::kInvalidArgument, "it has 3 parts of 6",
       [] { return ParseSpec("decode/bf16/d128").status(); }},
      {"SPEC parser, what is named but not served", Code::kUnimplemented,
       "SPEC 'decode/bf16/d128/g4/page16/bf16/compute=fp8': key 'compute'",
       [] {
         return ParseSpec("decode/bf16/d128/g4/page16/bf16/compute=fp8")
             .status();
       }},
      {"rules of a spec", Code::kInvalidArgument,
       "SPEC: page size 0 is out of range",
       [] {
         KernelSpec spec = *ParseSpec("decode/bf16/d128/g4/page16/bf16");
         spec.page_size = 0;
         return ValidateSpec(spec);
       }},
      {"table of formats", Code::kInvalidArgument,
       "a block scale covers 32 elements",
       [] { return CheckFormat(Format("mxfp8"), 80); }},
      {"table of formats, what is named but not served", Code::kUnimplemented,
       "format mxfp8 is named but not served",
       [] {
         KvFormat unserved = Format("mxfp8");
         unserved.served = false;
         return CheckFormat(unserved, 128);
       }},
      {"table of GPUs", Code::kUnimplemented,
       "GPU sm_75 is named but not served",
       [] { return FindTarget("sm_75").status(); }},
      {"kv-verify-target", Code::kInvalidArgument, "kv.kernel has no spec",
       [] {
         return RunPass(createKvVerifyTarget({.gpu = "sm_80"}),
                        "kv.kernel @k {\n  kv.yield\n}\n");
       }},
      {"kv-place-scales", Code::kInvalidArgument,
       "has a scale over 'n x d', one value per element",
       [] {
         return RunPass(createKvPlaceScales(), R"(
kv.kernel @k {
  %q = kv.load_q : !kv.mat<m x d, bf16>
  %c = kv.load_codes "k" : !kv.codes<n x d, e4m3>
  %s = kv.load_scale "k" : !kv.scale<n x d>
  %k = kv.dequant %c scales(%s)
      : (!kv.codes<n x d, e4m3>, !kv.scale<n x d>) -> !kv.mat<n x d, f32>
  %o = kv.dot %q, %k reduce(d)
      : !kv.mat<m x d, bf16>, !kv.mat<n x d, f32> -> !kv.mat<m x n, f32>
  kv.yield %o : !kv.mat<m x n, f32>
})");
       }},
      {"tile selector, a given tile", Code::kInvalidArgument,
       "is no shape of this kernel",
       [] {
         return CheckTile(*ParseSpec("decode/bf16/d128/g4/page16/bf16"),
                          {8, 32, 3, 4}, **FindTarget("sm_86"));
       }},
      {"rules of a spec, what fp8 does not serve", Code::kUnimplemented,
       "SPEC: compute=fp8 with format bf16 is not served",
       [] {
         return ParseSpec("extend/bf16/d128/g4/page16/bf16/compute=fp8")
             .status();
       }},
      {"tile selector, what a GPU does not compute", Code::kUnimplemented,
       "compute=fp8 needs products of warpgroups of 8-bit floats",
       [] {
         return SelectTile(
                    *ParseSpec(
                        "extend/e4m3_row/d128/g4/page16/bf16/compute=fp8"),
                    TinyGpu())
             .status();
       }},
      {"kv-lower-codec, what a GPU does not compute", Code::kInvalidArgument,
       "has no products that take codes of e4m3 undecoded",
       [] {
         return RunPass(
             createKvLowerCodec({.gpu = "sm_89"}),
             "kv.kernel @k "
             "spec(\"extend/e4m3_row/d128/g4/page16/bf16/compute=fp8\") {\n"
             "  %c = kv.load_codes \"k\" : !kv.codes<n x d, e4m3>\n"
             "  %k = kv.decode %c : (!kv.codes<n x d, e4m3>) -> "
             "!kv.mat<n x d, f32>\n  kv.yield\n}\n");
       }},
      {"tile selector", Code::kResourceExhausted, "no tile fits; the smallest",
       [] {
         return SelectTile(*ParseSpec("extend/bf16/d512/g4/page16/bf16"),
                           TinyGpu())
             .status();
       }},
      {"launcher, pointers", Code::kInvalidArgument,
       "extend: q is null; it must point to",
       [] { return CheckPointer("extend", "q", nullptr, 16, "query rows"); }},
      {"launcher, counts", Code::kInvalidArgument, "batch = -1 is negative",
       [] { return CheckCount("extend", "batch", -1); }},
      {"launcher, alignment", Code::kInvalidArgument,
       "base and strides of k.codes are multiples of 2 bytes only",
       [] {
         alignas(64) static char memory[64];
         return WidestAccess("store", "k.codes", memory + 2, {256, 128}, 128,
                             {16, 8, 4})
             .status();
       }},
      {"cache geometry", Code::kInvalidArgument,
       "cache geometry: ", [] { return CheckGeometry(CacheGeometry()); }},
      {"kernel store, strict", Code::kNotFound, "kvforge prime",
       [] { return KernelStore({}).Get(Request()).status(); }},
      {"loader of the compiler", Code::kUnavailable,
       "the kernel compiler could not be opened",
       [] { return JitLibrary::Open("/nonexistent/library").status(); }},
  };
}

TEST(Refusals, EachLayerSaysItsOwnSentence) {
  for (const Refusal& refusal : Refusals()) {
    const absl::Status status = refusal.ask();
    EXPECT_EQ(status.code(), refusal.code) << refusal.layer << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.sentence))
        << refusal.layer;
  }
}

TEST(Refusals, NoTwoLayersShareASentence) {
  const std::vector<Refusal> refusals = Refusals();
  for (const Refusal& refusal : refusals) {
    const std::string message(refusal.ask().message());
    for (const Refusal& other : refusals) {
      if (other.layer == refusal.layer) continue;
      EXPECT_THAT(message, Not(HasSubstr(other.sentence)))
          << refusal.layer << " speaks like " << other.layer;
    }
  }
}

// What was asked, what is supported, what to do.
TEST(Refusals, HaveThreeParts) {
  for (const Refusal& refusal : Refusals()) {
    const std::string message(refusal.ask().message());
    EXPECT_GE(std::count(message.begin(), message.end(), ';'), 1)
        << refusal.layer << ": " << message;
  }
}

}  // namespace
}  // namespace kvforge

// Every format of the table, served or not, as IR: it verifies, and scale
// placement, which knows no format, leaves no dequantized code behind.
#include "compiler/dialect/build_ir.h"

#include <gtest/gtest.h>

#include "compiler/dialect/kv_dialect.h"
#include "compiler/passes/passes.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

namespace kvforge {
namespace {

KernelSpec SpecFor(KernelKind kernel, const KvFormat& format) {
  KernelSpec spec;
  spec.kernel = kernel;
  spec.k_format = spec.v_format = &format;
  spec.head_dim = spec.v_head_dim = 128;
  spec.page_size = 16;
  return spec;
}

int CountOps(mlir::ModuleOp module, llvm::StringRef name) {
  int count = 0;
  module.walk([&](mlir::Operation* op) {
    count += op->getName().getStringRef() == name;
  });
  return count;
}

class EveryFormat : public ::testing::TestWithParam<const KvFormat*> {
 protected:
  EveryFormat() : context_(mlir::MLIRContext::Threading::DISABLED) {
    context_.loadDialect<kv::KvDialect>();
  }
  mlir::MLIRContext context_;
};

TEST_P(EveryFormat, AttentionVerifiesAndLosesEachDequant) {
  for (KernelKind kernel : {KernelKind::kDecode, KernelKind::kExtend}) {
    const mlir::OwningOpRef<mlir::ModuleOp> module =
        BuildIr(SpecFor(kernel, *GetParam()), context_);
    ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
    EXPECT_EQ(CountOps(*module, "kv.dequant"), 2);
    mlir::PassManager manager(&context_);
    manager.addNestedPass<kv::KernelOp>(createKvPlaceScales());
    ASSERT_TRUE(mlir::succeeded(manager.run(*module)));
    EXPECT_EQ(CountOps(*module, "kv.dequant"), 0);
    EXPECT_EQ(CountOps(*module, "kv.decode"), 2);
    EXPECT_EQ(CountOps(*module, "kv.dot"), 2);
  }
}

TEST_P(EveryFormat, StoreVerifies) {
  const mlir::OwningOpRef<mlir::ModuleOp> module =
      BuildIr(SpecFor(KernelKind::kStore, *GetParam()), context_);
  EXPECT_TRUE(mlir::succeeded(mlir::verify(*module)));
  EXPECT_EQ(CountOps(*module, "kv.store_codes"), 2);
}

// Rows that are written keep their dequant: no dot could take the scales.
TEST_P(EveryFormat, GatherVerifiesAndKeepsEachDequant) {
  const mlir::OwningOpRef<mlir::ModuleOp> module =
      BuildIr(SpecFor(KernelKind::kGather, *GetParam()), context_);
  ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
  EXPECT_EQ(CountOps(*module, "kv.store_rows"), 2);
  mlir::PassManager manager(&context_);
  manager.addNestedPass<kv::KernelOp>(createKvPlaceScales());
  ASSERT_TRUE(mlir::succeeded(manager.run(*module)));
  EXPECT_EQ(CountOps(*module, "kv.dequant"), 2);
  EXPECT_EQ(CountOps(*module, "kv.decode"), 0);
}

std::vector<const KvFormat*> Formats() {
  std::vector<const KvFormat*> formats;
  for (const KvFormat& format : kFormats) formats.push_back(&format);
  return formats;
}

INSTANTIATE_TEST_SUITE_P(All, EveryFormat, ::testing::ValuesIn(Formats()),
                         [](const auto& info) {
                           return std::string(info.param->name);
                         });

}  // namespace
}  // namespace kvforge

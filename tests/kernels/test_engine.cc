#include "tests/kernels/test_engine.h"

#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/tile/tile_selector.h"
#include "runtime/cuda/device.h"
#include "tests/kernels/test_main.h"

namespace kvforge {
namespace {

TestFlags flags;

std::unique_ptr<Engine>& EngineSlot() {
  static std::unique_ptr<Engine> engine;
  return engine;
}

}  // namespace

const TestFlags& Flags() { return flags; }
bool OnCuda() { return flags.target == TargetKind::kCuda; }
bool ListingSpecs() { return flags.list_specs; }

absl::Status OpenTestEngine(TestFlags the_flags, EngineOptions options) {
  flags = std::move(the_flags);
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(std::move(options));
  if (engine.ok()) EngineSlot() = *std::move(engine);
  return engine.status();
}

Engine& TestEngine() { return *EngineSlot(); }

SupportRecord& ExecutedRecord() {
  static SupportRecord record;
  return record;
}

void RecordExecuted(KernelKind kernel, const KvFormat& k, const KvFormat& v) {
  ExecutedRecord().Add(OnCuda() ? std::string(TestEngine().gpu().name) : "host",
                       kernel, &k, &v);
}

void WriteTarget(void* to, const void* from, size_t bytes) {
  if (!OnCuda()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const Device& device = *TestEngine().device();
  const ScopedContext context(device);
  KVFORGE_EXPECT_OK(context.status());
  KVFORGE_EXPECT_OK(device.api().Check(
      device.api().MemcpyHtoD(reinterpret_cast<CuDevicePtr>(to), from, bytes),
      "cuMemcpyHtoD"));
}

void ReadTarget(void* to, const void* from, size_t bytes) {
  if (!OnCuda()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const Device& device = *TestEngine().device();
  const ScopedContext context(device);
  KVFORGE_EXPECT_OK(context.status());
  KVFORGE_EXPECT_OK(device.api().Check(
      device.api().MemcpyDtoH(to, reinterpret_cast<CuDevicePtr>(from), bytes),
      "cuMemcpyDtoH"));
}

TargetBuffer Allocated(size_t bytes, size_t alignment) {
  absl::StatusOr<TargetBuffer> buffer =
      TargetBuffer::Allocate(TestEngine(), bytes, alignment);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

std::shared_ptr<const PreparedKernel> Prepared(const KernelSpec& spec) {
  absl::StatusOr<std::shared_ptr<const PreparedKernel>> kernel =
      TestEngine().Prepare(spec);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return *std::move(kernel);
}

std::shared_ptr<const PreparedKernel> Prepared(const std::string& text) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return Prepared(*spec);
}

AttentionCase Generated(const CaseOptions& options) {
  absl::StatusOr<AttentionCase> problem = GenerateCase(options);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

bool WithOtherTiles() {
  return Flags().all_tiles || !(OnCuda() || ListingSpecs());
}

std::vector<KernelInTile> PreparedInOtherTiles(const KernelSpec& spec) {
  std::vector<KernelInTile> kernels;
  if (!WithOtherTiles()) return kernels;
  for (const NamedTile& other : OtherExtendTiles(spec, TestEngine().gpu())) {
    auto kernel = TestEngine().Prepare(spec, other.tile);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (kernel.ok()) {
      kernels.push_back(
          {absl::StrCat("extend in ", other.name), *std::move(kernel)});
    }
  }
  return kernels;
}

Bench::Bench(AttentionCase the_problem, int layout_index)
    : problem(std::move(the_problem)), layout(kCaseLayouts[layout_index]) {
  auto created = CaseOnTarget::Create(TestEngine(), problem, layout);
  EXPECT_TRUE(created.ok()) << created.status();
  target = *std::move(created);
}

std::shared_ptr<const PreparedKernel> Bench::Kernel(KernelKind kind) const {
  const absl::StatusOr<KernelSpec> spec = CaseSpec(problem, kind, layout.order);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return Prepared(*spec);
}

void Bench::Store() {
  KVFORGE_EXPECT_OK(
      target->Store(*Kernel(KernelKind::kStore), target->StoreArguments()));
  KVFORGE_EXPECT_OK(target->CheckStored());
}

void Bench::ExpectRight(const char* kernel, bool padding_kept) {
  const absl::StatusOr<ErrorReport> errors = target->Compare(padding_kept);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_TRUE(errors->ok())
      << problem.name << " " << kernel << ": out " << errors->out_ratio
      << " of its bound at " << errors->worst_out << "; lse "
      << errors->lse_ratio << " at " << errors->worst_lse;
}

void Bench::ExpectAllRight(const AttentionArgs& args, int splits) {
  KVFORGE_EXPECT_OK(target->Extend(*Kernel(KernelKind::kExtend), args));
  ExpectRight("extend");
  for (const KernelInTile& other :
       PreparedInOtherTiles(Kernel(KernelKind::kExtend)->spec())) {
    KVFORGE_EXPECT_OK(target->Extend(*other.kernel, args));
    ExpectRight(other.name.c_str());
  }
  if (!FitsDecode(problem)) return;
  KVFORGE_EXPECT_OK(target->Decode(*Decoder(), args, 1));
  ExpectRight("decode");
  KVFORGE_EXPECT_OK(target->Decode(*Decoder(), args, splits));
  ExpectRight("decode with splits");
}

void PrepareCase(const AttentionCase& problem, int first_layout, int layouts) {
  constexpr int kLayouts = static_cast<int>(std::size(kCaseLayouts));
  for (int i = 0; i < layouts; ++i) {
    const SlotOrder order = kCaseLayouts[(first_layout + i) % kLayouts].order;
    for (KernelKind kind :
         {KernelKind::kStore, KernelKind::kExtend, KernelKind::kDecode}) {
      if (kind == KernelKind::kDecode && !FitsDecode(problem)) continue;
      const absl::StatusOr<KernelSpec> spec = CaseSpec(problem, kind, order);
      EXPECT_TRUE(spec.ok()) << spec.status();
      KVFORGE_EXPECT_OK(TestEngine().Prepare(*spec).status());
      PreparedInOtherTiles(*spec);
    }
  }
}

void ExpectCaseRight(const CaseOptions& options, int first_layout,
                     int layouts) {
  const AttentionCase problem = Generated(options);
  if (ListingSpecs()) return PrepareCase(problem, first_layout, layouts);
  const CaseRun run =
      RunCase(TestEngine(), problem, first_layout, layouts, WithOtherTiles());
  EXPECT_FALSE(run.results.empty());
  for (const KernelResult& result : run.results) {
    EXPECT_TRUE(result.status.ok())
        << problem.name << " " << result.kernel << " " << result.layout << ": "
        << result.status;
    const KernelKind kind = result.kernel == "store" ? KernelKind::kStore
                            : absl::StartsWith(result.kernel, "extend")
                                ? KernelKind::kExtend
                                : KernelKind::kDecode;
    RecordExecuted(kind, *problem.k.format, *problem.v.format);
  }
}

}  // namespace kvforge

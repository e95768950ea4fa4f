// Two GPUs in one process: engines and streams of both at once, and decode of
// sequences whose keys lie on both. On the CPU two engines stand for two GPUs.
#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "kernels/merge.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "tests/kernels/peer_copy.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

constexpr int kThreadsPerGpu = 2;
constexpr int kLaunches = 10;

class TwoGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ListingSpecs()) return;
    if (OnCuda() && *Device::Count() < 2) {
      GTEST_SKIP() << "needs two GPUs: did not run: kernels of two GPUs in one "
                      "process";
    }
    for (int i = 0; i < 2; ++i) {
      EngineOptions options = *EngineOptionsFromEnvironment();
      options.target = Flags().target;
      options.gpu = Flags().gpu;
      options.device = i;
      auto engine = Engine::Create(std::move(options));
      ASSERT_TRUE(engine.ok()) << engine.status();
      engines_.push_back(*std::move(engine));
      if (OnCuda()) {
        streams_[i] = *Stream::Create(engines_[i]->device());
      }
    }
  }

  CuStream stream(int i) { return OnCuda() ? streams_[i].get() : nullptr; }

  std::vector<std::unique_ptr<Engine>> engines_;
  Stream streams_[2];
};

CuContext CurrentContext() {
  CuContext context = nullptr;
  if (OnCuda()) {
    EXPECT_EQ(TestEngine().device()->api().CtxGetCurrent(&context), 0);
  }
  return context;
}

CaseOptions OfThread(int thread) {
  CaseOptions options;
  options.name = absl::StrCat("thread ", thread);
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.q_lens = {2, 1};
  options.kv_lens = {20 + thread, 100};
  options.seed = thread + 1;
  return options;
}

// Every kernel of a case, then decode again and again on a stream.
void WorkOn(Engine& engine, int thread) {
  const AttentionCase problem = Generated(OfThread(thread));
  const CaseRun run = RunCase(engine, problem, thread, 1);
  EXPECT_FALSE(run.results.empty());
  for (const KernelResult& result : run.results) {
    EXPECT_TRUE(result.status.ok())
        << problem.name << " " << result.kernel << ": " << result.status;
  }
  const CaseLayout& layout = kCaseLayouts[0];
  const auto target = CaseOnTarget::Create(engine, problem, layout);
  ASSERT_TRUE(target.ok()) << target.status();
  const auto store =
      engine.Prepare(*CaseSpec(problem, KernelKind::kStore, layout.order));
  ASSERT_TRUE(store.ok()) << store.status();
  KVFORGE_EXPECT_OK((*target)->Store(**store, (*target)->StoreArguments()));
  const auto decode =
      engine.Prepare(*CaseSpec(problem, KernelKind::kDecode, layout.order));
  ASSERT_TRUE(decode.ok()) << decode.status();
  std::optional<Stream> stream;
  if (OnCuda()) stream = *Stream::Create(engine.device());
  void* const handle = stream ? stream->get() : nullptr;
  const AttentionArgs args = (*target)->AttentionArguments();
  const DecodeGrid grid = (*target)->CutGrid(**decode, args, 3);
  KVFORGE_EXPECT_OK((*target)->PoisonOutputs());
  for (int i = 0; i < kLaunches; ++i) {
    KVFORGE_EXPECT_OK((*target)->QueueDecode(**decode, args, grid, handle));
  }
  KVFORGE_EXPECT_OK(SynchronizeTarget(engine, handle));
  const auto errors = (*target)->Compare(/*padding_kept=*/true);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_TRUE(errors->ok()) << errors->worst_out << " " << errors->worst_lse;
  EXPECT_EQ(CurrentContext(), nullptr);
}

TEST_F(TwoGpus, ThreadsOfBothRunAtOnce) {
  if (ListingSpecs()) {
    for (int i = 0; i < 2 * kThreadsPerGpu; ++i) {
      PrepareCase(Generated(OfThread(i)), i, 1);
      PrepareCase(Generated(OfThread(i)), 0, 1);
    }
    return;
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 2 * kThreadsPerGpu; ++i) {
    threads.emplace_back([this, i] { WorkOn(*engines_[i % 2], i); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Tokens of a sequence that the first GPU holds, in whole pages: about half,
// and none of a short one.
int FirstTokens(const AttentionCase& whole, int sequence) {
  return whole.kv_lens[sequence] / 2 / whole.page_size * whole.page_size;
}

// The case as the first or second GPU has it: its own tokens stored, the page
// table of its own pages. No mask, so positions do not matter.
AttentionCase PartOf(const AttentionCase& whole, int gpu) {
  AttentionCase part = whole;
  const int64_t width = whole.page_table_width;
  size_t token = 0;
  for (int b = 0; b < whole.batch(); ++b) {
    const int first = FirstTokens(whole, b);
    for (int j = 0; j < whole.kv_lens[b]; ++j, ++token) {
      if ((j < first) != (gpu == 0)) part.slot_mapping[token] = -1;
    }
    if (gpu == 0) {
      part.kv_lens[b] = first;
    } else {
      part.kv_lens[b] -= first;
      const auto row = part.page_table.begin() + b * width;
      std::rotate(row, row + first / whole.page_size, row + width);
    }
  }
  EXPECT_EQ(token, whole.slot_mapping.size());
  return part;
}

AttentionCase SplitCase() {
  CaseOptions options;
  options.name = "keys on two GPUs";
  options.head_dim = 128;
  options.num_q_heads = 8;
  options.num_kv_heads = 2;
  options.q_lens = {2, 1, 2, 1};
  options.kv_lens = {300, 33, 1000, 9};
  options.causal = false;
  options.out_type = DType::kF32;  // what merge takes
  return Generated(options);
}

void ExpectClose(const AttentionCase& expected, const std::vector<uint8_t>& out,
                 const std::vector<float>& lse, const char* what) {
  const ErrorReport errors =
      CompareAttention(expected, out, lse, /*padding_kept=*/true);
  EXPECT_TRUE(errors.ok()) << what << ": out " << errors.out_ratio
                           << " of its bound at " << errors.worst_out
                           << "; lse " << errors.lse_ratio << " at "
                           << errors.worst_lse;
}

// Stored and ready to decode on one engine.
struct Side {
  Side(Engine& engine, const AttentionCase& problem) : problem(problem) {
    const CaseLayout& layout = kCaseLayouts[0];
    target = *CaseOnTarget::Create(engine, problem, layout);
    KVFORGE_EXPECT_OK(target->Store(
        **engine.Prepare(*CaseSpec(problem, KernelKind::kStore, layout.order)),
        target->StoreArguments()));
    KVFORGE_EXPECT_OK(target->CheckStored());
    KVFORGE_EXPECT_OK(target->PoisonOutputs());
    kernel =
        *engine.Prepare(*CaseSpec(problem, KernelKind::kDecode, layout.order));
    args = target->AttentionArguments();
  }
  absl::Status Queue(CuStream stream) {
    return target->QueueDecode(*kernel, args, target->CutGrid(*kernel, args, 3),
                               stream);
  }

  const AttentionCase& problem;
  std::unique_ptr<CaseOnTarget> target;
  std::shared_ptr<const PreparedKernel> kernel;
  AttentionArgs args;
};

// Where the second GPU's state lies, and where it goes on the first.
struct Transfer {
  const void* from;
  void* to;
  size_t bytes;
};

// Decodes both parts, moves the second's (out, lse) by `move` and merges on the
// first: equal to float64 attention, and to one GPU that has all keys.
void ExpectMergesToTheWhole(
    Engine& first, Engine& second, CuStream first_stream,
    CuStream second_stream,
    const std::function<absl::Status(const std::vector<Transfer>&)>& move) {
  const AttentionCase whole = SplitCase();
  const AttentionCase parts[] = {PartOf(whole, 0), PartOf(whole, 1)};
  Side here(first, parts[0]);
  Side there(second, parts[1]);
  const size_t rows_heads = whole.lse.size();
  const size_t out_bytes = whole.out.size() * sizeof(float);
  const size_t lse_bytes = rows_heads * sizeof(float);
  TargetBuffer outs = *TargetBuffer::Allocate(first, 2 * out_bytes);
  TargetBuffer lses = *TargetBuffer::Allocate(first, 2 * lse_bytes);
  MergeArgs merge = {};
  merge.partial_out = outs.as<const float>();
  merge.partial_lse = lses.as<const float>();
  merge.out = here.args.out;
  merge.out_head_stride = here.args.out_head_stride;
  merge.out_row_stride = here.args.out_token_stride;
  merge.lse = here.args.lse;
  merge.lse_row_stride = here.args.lse_token_stride;
  merge.splits = 2;
  merge.heads = whole.num_q_heads;
  merge.rows = static_cast<int>(rows_heads) / merge.heads;
  const auto merger = first.Prepare(*ParseSpec("merge/d128/f32"));
  ASSERT_TRUE(merger.ok()) << merger.status();

  here.args.out = outs.as<unsigned char>();
  here.args.lse = lses.as<float>();
  KVFORGE_EXPECT_OK(here.Queue(first_stream));
  KVFORGE_EXPECT_OK(there.Queue(second_stream));
  KVFORGE_EXPECT_OK(move(
      {{there.args.out, outs.as<unsigned char>() + out_bytes, out_bytes},
       {there.args.lse, lses.as<unsigned char>() + lse_bytes, lse_bytes}}));
  KVFORGE_EXPECT_OK(RunMerge(**merger, merge, first_stream));
  KVFORGE_EXPECT_OK(SynchronizeTarget(first, first_stream));
  const std::vector<uint8_t> out = *here.target->Out();
  const std::vector<float> lse = *here.target->Lse();
  ExpectClose(whole, out, lse, "against float64");

  Side one(first, whole);
  KVFORGE_EXPECT_OK(one.Queue(first_stream));
  KVFORGE_EXPECT_OK(SynchronizeTarget(first, first_stream));
  AttentionCase of_one = whole;
  const std::vector<uint8_t> one_out = *one.target->Out();
  std::memcpy(of_one.out.data(), one_out.data(), one_out.size());
  of_one.lse = *one.target->Lse();
  ExpectClose(of_one, out, lse, "against one GPU");
}

void PrepareSplitCase() {
  PrepareCase(SplitCase(), 0, 1);
  Prepared("merge/d128/f32");
}

TEST_F(TwoGpus, DecodeOverKeysOnBothMergesToTheWhole) {
  if (ListingSpecs()) return PrepareSplitCase();
  ExpectMergesToTheWhole(
      *engines_[0], *engines_[1], stream(0), stream(1),
      [&](const std::vector<Transfer>& transfers) {
        absl::Status status = SynchronizeTarget(*engines_[1], stream(1));
        for (const Transfer& one : transfers) {
          if (!OnCuda()) {
            std::memcpy(one.to, one.from, one.bytes);
            continue;
          }
          status.Update(
              CopyToPeer({*engines_[0]->device(), one.to},
                         {*engines_[1]->device(), const_cast<void*>(one.from)},
                         one.bytes));
        }
        return status;
      });
  EXPECT_EQ(CurrentContext(), nullptr);
}

TEST_F(TwoGpus, DecodeOverKeysOnBothMergesToTheWholeThroughNccl) {
  KVFORGE_GPU_ONLY("decode over keys on two GPUs, joined through NCCL");
  if (ListingSpecs()) return PrepareSplitCase();
  const Device& first = *engines_[0]->device();
  const Device& second = *engines_[1]->device();
  absl::Status opened;
  // On a thread of its own: NCCL leaves a device's context current, under which
  // launches of both engines work all the same.
  std::thread([&] {
    const auto nccl = Nccl::Open(first, second);
    opened = nccl.status();
    if (!nccl.ok()) return;
    ExpectMergesToTheWhole(
        *engines_[0], *engines_[1], stream(0), stream(1),
        [&](const std::vector<Transfer>& transfers) {
          absl::Status status = (*nccl)->Begin();
          for (const Transfer& one : transfers) {
            status.Update((*nccl)->SecondToFirst(one.to, stream(0), one.from,
                                                 stream(1), one.bytes));
          }
          status.Update((*nccl)->End());
          return status;
        });
    KVFORGE_EXPECT_OK(SynchronizeTarget(*engines_[1], stream(1)));
  }).join();
  if (absl::IsUnavailable(opened)) {
    GTEST_SKIP() << "needs libnccl.so.2: did not run: decode over keys on two "
                    "GPUs, joined through NCCL: "
                 << opened.message();
  }
  KVFORGE_EXPECT_OK(opened);
}

}  // namespace
}  // namespace kvforge

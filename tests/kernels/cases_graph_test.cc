// Captured graphs that replay with other lengths, and the time that uneven
// lengths take: what only a GPU can tell. Numbers are those of docs/cases.md.
#include <algorithm>
#include <numeric>

#include "kernels/extend.h"
#include "kernels/store.h"
#include "runtime/cuda/stream.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

constexpr int kBatch = 8;

// Eight sequences of one query each, as long as they ever get.
CaseOptions Longest() {
  CaseOptions options;
  options.name = "graph";
  options.head_dim = 64;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.q_lens.assign(kBatch, 1);
  options.kv_lens = {200, 333, 90, 16, 40, 7, 64, 128};
  return options;
}

template <typename T>
void Rewrite(const T* at, const std::vector<T>& values) {
  WriteTarget(const_cast<T*>(at), values.data(), values.size() * sizeof(T));
}

// Captures a store and an attention kernel with short sequences, then replays
// the graph with a batch of 3 that is padded to 8 and longer sequences, and
// again with all eight at their longest.
void ExpectReplays(
    const std::function<absl::Status(Bench&, const AttentionArgs&, void*)>&
        queue) {
  Bench bench(Generated(Longest()));
  const AttentionArgs args = bench.target->AttentionArguments();
  const StoreArgs store = bench.target->StoreArguments();
  const std::vector<int> whole_batch = bench.problem.q_indptr;
  const auto store_kernel = bench.Kernel(KernelKind::kStore);
  // Everything is prepared before the capture.
  KVFORGE_EXPECT_OK(queue(bench, args, nullptr));
  if (ListingSpecs()) return;
  KVFORGE_EXPECT_OK(SynchronizeTarget(TestEngine(), nullptr));

  Rewrite(args.kv_lens, {20, 33, 9, 16, 4, 7, 6, 12});
  absl::StatusOr<Stream> stream = Stream::Create(TestEngine().device());
  ASSERT_TRUE(stream.ok()) << stream.status();
  KVFORGE_EXPECT_OK(stream->BeginCapture());
  KVFORGE_EXPECT_OK(RunStore(*store_kernel, store, stream->get()));
  KVFORGE_EXPECT_OK(queue(bench, args, stream->get()));
  const absl::StatusOr<Graph> graph = stream->EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto replay = [&] {
    KVFORGE_EXPECT_OK(bench.target->PoisonOutputs());
    KVFORGE_EXPECT_OK(graph->Launch(stream->get()));
    KVFORGE_EXPECT_OK(stream->Synchronize());
  };

  Rewrite(args.kv_lens, {200, 333, 90, 0, 0, 0, 0, 0});
  const std::vector<int> three = {0, 1, 2, 3, 3, 3, 3, 3, 3};
  Rewrite(args.q_indptr, three);
  bench.problem.q_indptr = three;
  replay();
  KVFORGE_EXPECT_OK(bench.target->CheckStored());
  bench.ExpectRight("batch of 3");

  Rewrite(args.kv_lens, std::vector<int>(bench.problem.kv_lens));
  Rewrite(args.q_indptr, whole_batch);
  bench.problem.q_indptr = whole_batch;
  replay();
  bench.ExpectRight("batch of 8");
}

TEST(Case44, DecodeGraphReplaysWithAPaddedBatchAndLongerSequences) {
  KVFORGE_GPU_ONLY("a captured graph of store and decode");
  for (int splits : {1, 3}) {
    ExpectReplays([splits](Bench& bench, const AttentionArgs& args,
                           void* stream) {
      const auto kernel = bench.Decoder();
      return bench.target->QueueDecode(
          *kernel, args, bench.target->CutGrid(*kernel, args, splits), stream);
    });
  }
}

TEST(Case44, ExtendGraphReplaysWithAPaddedBatchAndLongerSequences) {
  KVFORGE_GPU_ONLY("a captured graph of store and extend");
  ExpectReplays([](Bench& bench, const AttentionArgs& args, void* stream) {
    return RunExtend(*bench.Kernel(KernelKind::kExtend),
                     {args, bench.problem.num_q_heads}, stream);
  });
}

// A cache of equal bytes in eight sequences, of lengths that are given; what
// the kernel computes does not matter here.
class Sequences {
 public:
  static constexpr int kPageSize = 16;
  static constexpr int kKvHeads = 8;
  static constexpr int kGroup = 4;
  static constexpr int kHeadDim = 128;

  Sequences(Bench& bench, const std::vector<int>& lens)
      : bench_(bench), lens_(lens) {
    const int total = std::accumulate(lens.begin(), lens.end(), 0);
    const int64_t pages = total / kPageSize + kBatch;
    CacheGeometry geometry = GeometryOf(bench.problem, kCaseLayouts[0]);
    args_ = bench.target->AttentionArguments();
    for (auto [side, view, codes, scales] :
         {std::tuple{CacheSide::kKey, &args_.k, &codes_[0], &scales_[0]},
          {CacheSide::kValue, &args_.v, &codes_[1], &scales_[1]}}) {
      *codes =
          Allocated(PlaneBufferBytes(geometry, side, PlaneKind::kCodes, pages));
      *scales = Allocated(
          PlaneBufferBytes(geometry, side, PlaneKind::kRowScale, pages));
      // The code and the f32 scale are small positive numbers.
      KVFORGE_EXPECT_OK(codes->Fill(0x38));
      KVFORGE_EXPECT_OK(scales->Fill(0x38));
      *view =
          MakeCacheView(geometry, side, codes->data(), scales->data(), nullptr);
    }
    const int width =
        *std::max_element(lens.begin(), lens.end()) / kPageSize + 1;
    std::vector<int> table(kBatch * width, -1);
    int page = 0;
    for (int b = 0; b < kBatch; ++b) {
      for (int i = 0; i * kPageSize < lens[b]; ++i) {
        table[b * width + i] = page++;
      }
    }
    page_table_ = Uploaded(table);
    kv_lens_ = Uploaded(lens);
    args_.page_table = page_table_.as<const int>();
    args_.page_table_stride = width;
    args_.kv_lens = kv_lens_.as<const int>();
  }

  // Milliseconds of one decode launch, the median of many.
  float Time(const PreparedKernel& kernel, Stream& stream) {
    DecodeSizes sizes;
    sizes.batch = kBatch;
    sizes.num_kv_heads = kKvHeads;
    const DecodeGrid grid = ChooseDecodeGrid(TestEngine(), kernel, sizes);
    std::vector<float> times;
    for (int i = 0; i < 25; ++i) {
      auto start = *Event::Create(TestEngine().device());
      auto end = *Event::Create(TestEngine().device());
      KVFORGE_EXPECT_OK(start.Record(stream.get()));
      KVFORGE_EXPECT_OK(
          bench_.target->QueueDecode(kernel, args_, grid, stream.get()));
      KVFORGE_EXPECT_OK(end.Record(stream.get()));
      KVFORGE_EXPECT_OK(end.Synchronize());
      if (i >= 5) times.push_back(*end.MillisecondsSince(start));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  Bench& bench_;
  std::vector<int> lens_;
  AttentionArgs args_;
  TargetBuffer codes_[2], scales_[2], page_table_, kv_lens_;
};

TEST(Case46, OneLongRequestTakesTheTimeOfItsBytes) {
  KVFORGE_GPU_ONLY("the time of decode over sequences of uneven length");
  CaseOptions options;
  options.name = "uneven";
  options.num_kv_heads = Sequences::kKvHeads;
  options.num_q_heads = Sequences::kKvHeads * Sequences::kGroup;
  options.head_dim = Sequences::kHeadDim;
  options.page_size = Sequences::kPageSize;
  options.q_lens.assign(kBatch, 1);
  options.kv_lens.assign(kBatch, 1);
  Bench bench(Generated(options));
  const auto kernel = bench.Decoder();
  if (ListingSpecs()) return;
  constexpr int kLong = 128 * 1024;
  constexpr int kShort = kLong / 100;
  std::vector<int> uneven(kBatch, kShort);
  uneven[3] = kLong;
  const std::vector<int> even(kBatch, (kLong + (kBatch - 1) * kShort) / kBatch);
  absl::StatusOr<Stream> stream = Stream::Create(TestEngine().device());
  ASSERT_TRUE(stream.ok()) << stream.status();
  const float even_ms = Sequences(bench, even).Time(*kernel, *stream);
  const float uneven_ms = Sequences(bench, uneven).Time(*kernel, *stream);
  std::printf("evenly spread %.4f ms, one 100x longer %.4f ms, ratio %.3f\n",
              even_ms, uneven_ms, uneven_ms / even_ms);
  EXPECT_LE(uneven_ms, 1.3f * even_ms);
}

}  // namespace
}  // namespace kvforge

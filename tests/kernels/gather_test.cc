// Gather on the CPU, bit for bit: what a store wrote, read back through slots
// in any order, against the host codecs.
#include "kernels/gather.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "compiler/formats/codec.h"
#include "compiler/formats/row_codec.h"
#include "runtime/base/status_macros.h"
#include "tests/kernels/test_engine.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

// Bytes of one value of `type`; NaN is all ones, whatever its payload.
std::vector<uint8_t> Encoded(DType type, double value) {
  const float rounded = static_cast<float>(value);
  std::vector<uint8_t> bytes(DTypeBytes(type));
  if (std::isnan(rounded)) {
    std::fill(bytes.begin(), bytes.end(), 0xff);
  } else if (type == DType::kF32) {
    std::memcpy(bytes.data(), &rounded, 4);
  } else {
    const uint16_t code =
        type == DType::kBf16 ? EncodeBf16(rounded) : EncodeF16(rounded);
    std::memcpy(bytes.data(), &code, 2);
  }
  return bytes;
}

// The row (token, head) of a side as gather must give it.
std::vector<uint8_t> ExpectedRow(const CaseSide& side, int heads, int64_t token,
                                 int head, DType type) {
  const KvFormat& format = *side.format;
  const int64_t row = token * heads + head;
  const auto part = [&](const std::vector<uint8_t>& bytes, int64_t width) {
    return std::vector<uint8_t>(bytes.begin() + row * width,
                                bytes.begin() + (row + 1) * width);
  };
  QuantizedRow stored;
  stored.codes = part(side.codes, format.CodeBytes(side.head_dim));
  stored.block_scales =
      part(side.block_scale, format.BlockScaleBytes(side.head_dim));
  if (!side.row_scale.empty()) stored.row_scale = side.row_scale[row];
  if (!side.row_min.empty()) stored.row_min = side.row_min[row];
  std::vector<uint8_t> bytes;
  for (double value : DequantizeRow(format, stored, side.Given(head))) {
    const std::vector<uint8_t> encoded = Encoded(type, value);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  return bytes;
}

// Sets every NaN of `bytes` to all ones, so that they compare.
void UnifyNans(DType type, std::vector<uint8_t>& bytes) {
  const int width = DTypeBytes(type);
  for (size_t at = 0; at < bytes.size(); at += width) {
    float value = 0;
    if (type == DType::kF32) {
      std::memcpy(&value, &bytes[at], 4);
    } else {
      uint16_t code = 0;
      std::memcpy(&code, &bytes[at], 2);
      value = type == DType::kBf16 ? DecodeBf16(code) : DecodeF16(code);
    }
    if (std::isnan(value)) std::fill_n(bytes.begin() + at, width, 0xff);
  }
}

// A stored case and buffers for one gather of it.
struct GatherBench {
  GatherBench(const CaseOptions& options, DType out_type, int layout_index)
      : bench(Generated(options), layout_index), type(out_type) {
    bench.Store();
    spec = *CaseSpec(bench.problem, KernelKind::kStore, bench.layout.order);
    spec.kernel = KernelKind::kGather;
    spec.type = spec.out = type;
  }

  int64_t RowBytes(const CaseSide& side) const {
    return int64_t{side.head_dim} * DTypeBytes(type);
  }

  // Rows lie `pad` bytes apart; what is between them stays as it was.
  absl::Status Run(const std::vector<int64_t>& slots, int64_t pad = 32) {
    const Engine& engine = TestEngine();
    const int heads = bench.problem.num_kv_heads;
    const StoreArgs store = bench.target->StoreArguments();
    GatherArgs args = {};
    args.k = store.k;
    args.v = store.v;
    args.num_slots = store.num_slots;
    args.num_kv_heads = heads;
    args.num_rows = static_cast<int>(slots.size());
    slot_buffer =
        *TargetBuffer::FromHost(engine, slots.data(), slots.size() * 8, 8);
    args.slots = slot_buffer.as<const long long>();
    for (auto [side, rows, buffer] :
         {std::tuple{&bench.problem.k, &args.k_out, &k_out},
          {&bench.problem.v, &args.v_out, &v_out}}) {
      rows->head_stride = RowBytes(*side);
      rows->token_stride = RowBytes(*side) * heads + pad;
      *buffer =
          *TargetBuffer::Allocate(engine, rows->token_stride * slots.size());
      RETURN_IF_ERROR(buffer->Fill(kPoison));
      rows->base = buffer->as<unsigned char>();
    }
    if (change) change(args);
    const auto kernel = TestEngine().Prepare(spec);
    if (!kernel.ok()) return kernel.status();
    RETURN_IF_ERROR(RunGather(**kernel, args, nullptr));
    return SynchronizeTarget(engine, nullptr);
  }

  // Compares with the rows of `tokens`; -1 is a row of zeros.
  void ExpectRows(const std::vector<int64_t>& tokens, int64_t pad = 32) {
    const int heads = bench.problem.num_kv_heads;
    for (auto [side, buffer] :
         {std::pair{&bench.problem.k, &k_out}, {&bench.problem.v, &v_out}}) {
      std::vector<uint8_t> bytes(buffer->bytes());
      KVFORGE_EXPECT_OK(buffer->CopyToHost(bytes.data(), bytes.size()));
      const int64_t row_bytes = RowBytes(*side);
      for (size_t i = 0; i < tokens.size(); ++i) {
        const int64_t start = i * (row_bytes * heads + pad);
        for (int h = 0; h < heads; ++h) {
          const auto first = bytes.begin() + start + h * row_bytes;
          std::vector<uint8_t> row(first, first + row_bytes);
          UnifyNans(type, row);
          ASSERT_EQ(row, tokens[i] < 0
                             ? std::vector<uint8_t>(row_bytes)
                             : ExpectedRow(*side, heads, tokens[i], h, type))
              << spec.Text() << " row " << i << " head " << h;
        }
        for (int64_t at = row_bytes * heads; at < row_bytes * heads + pad;
             ++at) {
          ASSERT_EQ(bytes[start + at], kPoison) << "behind row " << i;
        }
      }
    }
  }

  Bench bench;
  DType type;
  KernelSpec spec;
  std::function<void(GatherArgs&)> change;
  TargetBuffer slot_buffer, k_out, v_out;
};

CaseOptions Options(const std::string& format, int head_dim, int page_size) {
  CaseOptions options;
  options.name = "gather";
  options.format = format;
  options.head_dim = head_dim;
  options.num_q_heads = options.num_kv_heads = 3;
  options.page_size = page_size;
  options.q_lens = {0, 0};
  options.kv_lens = {37, 6};
  return options;
}

// Every token in random order, some twice, between slots that do not exist.
void ExpectAllGathered(const CaseOptions& options, DType type,
                       int layout_index) {
  GatherBench gather(options, type, layout_index);
  std::mt19937 random(7);
  std::vector<int64_t> tokens;
  for (int64_t t = 0; t < gather.bench.problem.tokens(); ++t) {
    tokens.push_back(t);
    if (t % 5 == 0) tokens.push_back(t);
    if (t % 7 == 0) tokens.push_back(-1);
  }
  std::shuffle(tokens.begin(), tokens.end(), random);
  const int64_t missing[] = {-1, std::numeric_limits<int64_t>::min(),
                             gather.bench.target->cache().num_slots(),
                             std::numeric_limits<int64_t>::max()};
  std::vector<int64_t> slots;
  for (size_t i = 0; i < tokens.size(); ++i) {
    slots.push_back(tokens[i] < 0
                        ? missing[i % 4]
                        : gather.bench.problem.slot_mapping[tokens[i]]);
  }
  KVFORGE_EXPECT_OK(gather.Run(slots));
  gather.ExpectRows(tokens);
  RecordExecuted(KernelKind::kGather, *gather.spec.k_format,
                 *gather.spec.v_format);
}

class EveryFormat : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryFormat, ReadsBackWhatWasStored) {
  ExpectAllGathered(Options(GetParam(), 64, 16), DType::kBf16, 0);
  ExpectAllGathered(Options(GetParam(), 128, 1), DType::kF16, 1);
  ExpectAllGathered(Options(GetParam(), 96, 48), DType::kF32, 3);
}

// A NaN or an Inf of the source, a row of zeros, an offset in one element.
TEST_P(EveryFormat, SpecialRows) {
  CaseOptions options = Options(GetParam(), 64, 16);
  options.k = options.v = [](int64_t token, int, int d) {
    if (token == 2) return 0.0f;
    if (token == 3 && d == 5) return std::nanf("");
    if (token == 4 && d == 17) return std::numeric_limits<float>::infinity();
    return token % 2 == 0 ? 1000.0f + d : -0.001f * d;
  };
  ExpectAllGathered(options, DType::kF32, 2);
  ExpectAllGathered(options, DType::kBf16, 0);
}

std::vector<std::string> ServedFormats() {
  std::vector<std::string> names;
  for (const KvFormat& format : kFormats) {
    if (format.served) names.push_back(std::string(format.name));
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EveryFormat, ::testing::ValuesIn(ServedFormats()),
                         [](const auto& info) { return info.param; });

TEST(Gather, HeadDimsOfKeysAndValuesDiffer) {
  CaseOptions options = Options("e4m3_row", 192, 16);
  options.v_head_dim = 80;
  options.v_format = "nvfp4_row";
  ExpectAllGathered(options, DType::kBf16, 0);
  ExpectAllGathered(Options("bf16", 512, 16), DType::kBf16, 4);
}

// A 16-bit cache keeps the payloads of its NaNs.
TEST(Gather, SixteenBitsOfTheSameTypeAreCopied) {
  GatherBench gather(Options("bf16", 64, 16), DType::kBf16, 0);
  const AttentionCase& problem = gather.bench.problem;
  unsigned char* key =
      gather.bench.target->StoreArguments().k.codes.base +
      problem.slot_mapping[0] / 16 *
          gather.bench.target->StoreArguments().k.codes.page_stride +
      problem.slot_mapping[0] % 16 *
          gather.bench.target->StoreArguments().k.codes.slot_stride;
  const uint16_t payload = 0x7fa5;  // a signalling NaN
  WriteTarget(key, &payload, 2);
  KVFORGE_EXPECT_OK(gather.Run({problem.slot_mapping[0]}));
  uint16_t read = 0;
  KVFORGE_EXPECT_OK(gather.k_out.CopyToHost(&read, 2));
  EXPECT_EQ(read, payload);
}

TEST(Gather, NothingIsLaunchedForNothing) {
  GatherArgs args = {};
  args.num_kv_heads = 2;
  KVFORGE_EXPECT_OK(RunGather(*Prepared("gather/e4m3_row/d64/g1/page16/bf16"),
                              args, nullptr));
}

TEST(Gather, RefusesByName) {
  GatherBench gather(Options("e4m3_row", 64, 16), DType::kBf16, 0);
  const auto refused = [&](const std::function<void(GatherArgs&)>& change) {
    gather.change = change;
    const absl::Status status = gather.Run({0, 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](GatherArgs& a) { a.slots = nullptr; }),
              HasSubstr("gather: slots is null; it must point to i64 slots, "
                        "one a row; pass memory of the engine's target"));
  EXPECT_THAT(refused([](GatherArgs& a) { a.k_out.base = nullptr; }),
              HasSubstr("gather: k_out"));
  EXPECT_THAT(refused([](GatherArgs& a) { a.v_out.base += 8; }),
              HasSubstr("gather: v_out"));
  EXPECT_THAT(refused([](GatherArgs& a) { a.v_out.head_stride = 64; }),
              HasSubstr("gather: rows of v_out overlap"));
  EXPECT_THAT(refused([](GatherArgs& a) { a.k.row_scale.base = nullptr; }),
              HasSubstr("gather: k.row_scale.base is null"));
  EXPECT_THAT(refused([](GatherArgs& a) { a.num_rows = -1; }),
              HasSubstr("gather: num_rows = -1 is negative"));
  GatherArgs args = {};
  EXPECT_EQ(RunGather(*Prepared("merge/d64/f32"), args, nullptr).message(),
            "gather: the kernel is merge/d64/f32; only gather kernels "
            "gather; prepare a gather spec");
}

}  // namespace
}  // namespace kvforge

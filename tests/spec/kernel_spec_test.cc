#include "compiler/spec/kernel_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

struct Spelling {
  const char* text;
  const char* canonical;
};

class Canonical : public ::testing::TestWithParam<Spelling> {};

TEST_P(Canonical, TextIsTheOneSpelling) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(GetParam().text);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->Text(), GetParam().canonical);
  const absl::StatusOr<KernelSpec> again = ParseSpec(spec->Text());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *spec);
}

INSTANTIATE_TEST_SUITE_P(
    Spec, Canonical,
    ::testing::Values(
        Spelling{"decode/e4m3_row/d128/g4/page16/bf16",
                 "decode/e4m3_row/d128/g4/page16/bf16"},
        Spelling{"extend/nvfp4_row/d256/g8/page64/bf16/window=4096",
                 "extend/nvfp4_row/d256/g8/page64/bf16/window=4096"},
        // store serves every group
        Spelling{"store/e4m3_row/d128/g7/page16/bf16",
                 "store/e4m3_row/d128/g1/page16/bf16"},
        Spelling{"gather/nvfp4_row/d96/g8/page48/f32/v=bf16/order=hnd",
                 "gather/nvfp4_row/d96/g1/page48/f32/order=hnd/v=bf16"},
        Spelling{"merge/d128/bf16", "merge/d128/bf16"},
        Spelling{"merge/d512/f32", "merge/d512/f32"},
        // keys in any order come out sorted
        Spelling{"decode/bf16/d192/g128/page1/f16/window=9/v=e4m3_row/softcap="
                 "30/sinks=1/q_max=16/out=f32/order=hnd/mask=full/dv=128",
                 "decode/bf16/d192/g128/page1/f16/dv=128/mask=full/order=hnd/"
                 "out=f32/q_max=16/sinks=1/softcap=30/v=e4m3_row/window=9"},
        Spelling{"extend/bf16/d64/g1/page1/bf16/sparse=16/mask=custom/alibi",
                 "extend/bf16/d64/g1/page1/bf16/alibi=1/mask=custom/sparse=16"},
        Spelling{"decode/f16/d64/g1/page1/f32/sinks",
                 "decode/f16/d64/g1/page1/f32/sinks=1"},
        Spelling{"extend/e4m3_row/d128/g4/page16/bf16/v=e4m3_head/compute=fp8/"
                 "alibi",
                 "extend/e4m3_row/d128/g4/page16/bf16/alibi=1/compute=fp8/"
                 "v=e4m3_head"},
        Spelling{"extend/nvfp4/d64/g1/page1/bf16/compute=16bit",
                 "extend/nvfp4/d64/g1/page1/bf16"},
        // keys at their default are left out
        Spelling{"decode/f16/d64/g1/page65536/f32/alibi=0/dv=64/mask=causal/"
                 "order=nhd/out=f32/q_max=1/sinks=0/softcap=0/sparse=0/v=f16/"
                 "window=0",
                 "decode/f16/d64/g1/page65536/f32"},
        // shortest numbers that read back as the same f32
        Spelling{"extend/f16/d64/g1/page1/f32/softcap=30.000000",
                 "extend/f16/d64/g1/page1/f32/softcap=30"},
        Spelling{"extend/f16/d64/g1/page1/f32/softcap=0.1000000001",
                 "extend/f16/d64/g1/page1/f32/softcap=0.1"},
        Spelling{"extend/f16/d64/g1/page1/f32/softcap=5e1",
                 "extend/f16/d64/g1/page1/f32/softcap=50"},
        Spelling{"extend/f16/d64/g1/page1/f32/window=2147483647",
                 "extend/f16/d64/g1/page1/f32/window=2147483647"}));

struct Refusal {
  const char* text;
  absl::StatusCode code;
  const char* message;  // a part of it
};

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, SaysWhatIsSupported) {
  const absl::Status status = ParseSpec(GetParam().text).status();
  EXPECT_EQ(status.code(), GetParam().code) << GetParam().text << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message))
      << GetParam().text;
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnserved = absl::StatusCode::kUnimplemented;

INSTANTIATE_TEST_SUITE_P(
    Form, Refused,
    ::testing::Values(
        Refusal{"", kInvalid, "a part is empty"},
        Refusal{"/", kInvalid, "a part is empty"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/", kInvalid, "a part is empty"},
        Refusal{"decode//d64/g1/page1/bf16", kInvalid, "a part is empty"},
        Refusal{"decode", kInvalid,
                "it has 1 parts of 6; supported: "
                "KERNEL/FORMAT/dD/gG/pageP/TYPE[/key=value...]; add what is "
                "missing"},
        Refusal{"merge/d128", kInvalid, "supported: merge/dD/TYPE"},
        Refusal{"decoder/bf16/d64/g1/page1/bf16", kInvalid,
                "kernel 'decoder' is unknown; supported: store, decode, "
                "extend, merge, gather; begin with one of these"},
        Refusal{"gather/bf16/d64/g1/page1/bf16/out=f32", kInvalid,
                "key 'out' does not belong to gather; supported: gather takes "
                "the keys dv, order, v"},
        Refusal{"decode/fp8/d64/g1/page1/bf16", kInvalid,
                "format 'fp8' does not exist"},
        Refusal{"decode/mxfp8/d80/g1/page1/bf16", kInvalid,
                "a block scale covers 32 elements"},
        Refusal{"decode/bf16/d80/g1/page1/bf16/v=mxfp4", kInvalid,
                "a block scale covers 32 elements"},
        Refusal{"decode/bf16/D64/g1/page1/bf16", kInvalid,
                "'D64' stands where dNUMBER belongs"},
        Refusal{"decode/bf16/d64/page1/g1/bf16", kInvalid,
                "'page1' stands where gNUMBER belongs"},
        Refusal{"decode/bf16/d64/g1/page1/fp16", kInvalid,
                "type 'fp16' is not known; supported: bf16, f16, f32"},
        Refusal{"decode/bf16/d64/g1/page1/bf16 ", kInvalid, "type 'bf16 '"}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, Refused,
    ::testing::Values(
        Refusal{"decode/bf16/d/g1/page1/bf16", kInvalid, "'d' has no number"},
        Refusal{"decode/bf16/d-64/g1/page1/bf16", kInvalid, "'d-64'"},
        Refusal{"decode/bf16/d+64/g1/page1/bf16", kInvalid, "'d+64'"},
        Refusal{"decode/bf16/d64x/g1/page1/bf16", kInvalid, "'d64x'"},
        Refusal{"decode/bf16/d 64/g1/page1/bf16", kInvalid, "'d 64'"},
        Refusal{"decode/bf16/d4294967360/g1/page1/bf16", kInvalid,
                "decimal digits, 0 to 2147483647"},
        Refusal{"decode/bf16/d72/g1/page1/bf16", kInvalid,
                "zero-pad q, k and v to 80"},
        Refusal{"merge/d100/bf16", kInvalid, "head_dim 100 of merge"},
        Refusal{"decode/bf16/d64/g0/page1/bf16", kInvalid,
                "group 0 is out of range; supported: 1 to 128"},
        Refusal{"decode/bf16/d64/g129/page1/bf16", kInvalid, "group 129"},
        Refusal{"store/bf16/d64/g0/page1/bf16", kInvalid, "group 0"},
        Refusal{"store/bf16/d64/g129/page1/bf16", kInvalid, "group 129"},
        Refusal{"decode/bf16/d64/g1/page0/bf16", kInvalid,
                "page size 0 is out of range; supported: 1 to 65536"},
        Refusal{"decode/bf16/d64/g1/page65537/bf16", kInvalid, "page size"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/q_max=0", kInvalid, "q_max 0"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/q_max=17", kInvalid,
                "q_max 17 is out of range; supported: 1 to 16"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/window=-1", kInvalid,
                "'window=-1'"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/window=2147483648", kInvalid,
                "'window=2147483648'"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/window=", kInvalid, "'window='"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/softcap=-3", kInvalid,
                "'softcap=-3'"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/softcap=-0", kInvalid,
                "'softcap=-0'"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/softcap=inf", kInvalid,
                "positive finite f32"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/softcap=nan", kInvalid,
                "positive finite f32"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/softcap=1e39", kInvalid,
                "positive finite f32"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/softcap=3x", kInvalid,
                "'softcap=3x'"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/dv=100", kInvalid,
                "head_dim 100"}));

INSTANTIATE_TEST_SUITE_P(
    Keys, Refused,
    ::testing::Values(
        Refusal{"decode/bf16/d64/g1/page1/bf16/windows=4", kInvalid,
                "key 'windows' is unknown; supported: decode takes the keys "
                "alibi, dv, mask, order, out, q_max, score, sinks, softcap, "
                "sparse, v, window; leave it out"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/window=4/window=4", kInvalid,
                "key 'window' is given twice"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/window", kInvalid,
                "key 'window' has no value"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/=4", kInvalid, "key ''"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/mask=none", kInvalid,
                "'mask=none' has an unknown value; supported: causal, full, "
                "custom"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/order=NHD", kInvalid,
                "supported: nhd, hnd"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/sinks=2", kInvalid,
                "supported: 0, 1"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/out=e4m3", kInvalid,
                "type 'e4m3'"},
        Refusal{"extend/bf16/d64/g1/page1/bf16/q_max=4", kInvalid,
                "key 'q_max' does not belong to extend"},
        Refusal{"store/bf16/d64/g1/page1/bf16/window=4", kInvalid,
                "store takes the keys dv, order, v"},
        Refusal{"merge/d64/bf16/dv=128", kInvalid, "merge takes no keys"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/alibi=2", kInvalid,
                "'alibi=2' has an unknown value; supported: 0, 1"},
        Refusal{"store/bf16/d64/g1/page1/bf16/alibi", kInvalid,
                "key 'alibi' does not belong to store"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/sparse", kInvalid,
                "key 'sparse' has no value"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/sparse=65537", kInvalid,
                "sparse 65537; supported: 0 (all keys) or the tokens of a "
                "block, 1 to 65536"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/compute=fp8", kUnserved,
                "key 'compute' is named but not served in this version"},
        Refusal{"store/e4m3_row/d128/g1/page1/bf16/compute=fp8", kUnserved,
                "key 'compute' is named but not served in this version"},
        Refusal{"extend/e4m3_row/d128/g1/page1/bf16/compute=int8", kInvalid,
                "'compute=int8' has an unknown value; supported: 16bit, fp8"},
        Refusal{"extend/mxfp8/d128/g1/page1/bf16/compute=fp8", kUnserved,
                "compute=fp8 with format mxfp8 is not served; served: "
                "e4m3_tensor, e4m3_head, e4m3_row; leave compute out"},
        Refusal{"extend/e4m3_row/d128/g1/page1/bf16/compute=fp8/v=bf16",
                kUnserved, "compute=fp8 with format bf16 is not served"},
        Refusal{"extend/e4m3_channel/d128/g1/page1/bf16/compute=fp8", kUnserved,
                "compute=fp8 with format e4m3_channel is not served"},
        Refusal{"extend/e4m3_row/d64/g1/page1/bf16/compute=fp8", kUnserved,
                "compute=fp8 with head_dim 64 is not served; served: head_dim "
                "128"},
        Refusal{"extend/e4m3_row/d128/g1/page1/bf16/compute=fp8/dv=64",
                kUnserved, "compute=fp8 with head_dim 64 is not served"},
        Refusal{"extend/e4m3_row/d128/g1/page1/bf16/compute=fp8/sparse=16",
                kUnserved,
                "compute=fp8 with sparse=16 is not served; served: "
                "all keys, window and mask=custom"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/score=abc", kInvalid,
                "score 'abc'; supported: the digest of a score function, 32 "
                "digits 0-9a-f; take what `kvforge score FILE` prints"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/"
                "score=0123456789ABCDEF0123456789abcdef",
                kInvalid, "32 digits 0-9a-f"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/score=", kInvalid,
                "key 'score' has no value"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/"
                "score=0123456789abcdef0123456789abcdef/softcap=30",
                kInvalid,
                "score beside softcap; supported: a score function in place of "
                "softcap and alibi; write them in the function"},
        Refusal{"extend/bf16/d64/g1/page1/bf16/alibi=1/"
                "score=0123456789abcdef0123456789abcdef",
                kInvalid, "score beside alibi"},
        Refusal{"store/bf16/d64/g1/page1/bf16/"
                "score=0123456789abcdef0123456789abcdef",
                kInvalid, "key 'score' does not belong to store"},
        Refusal{"decode/bf16/d64/g1/page1/bf16/scales=inline", kUnserved,
                "key 'scales'"}));

// A spec that ParseSpec accepts, drawn from all values a field takes.
KernelSpec RandomSpec(std::mt19937& rng) {
  const auto below = [&](int bound) {
    return static_cast<int>(rng() % static_cast<unsigned>(bound));
  };
  std::vector<const KvFormat*> formats;
  for (const KvFormat& format : kFormats) {
    if (format.served) formats.push_back(&format);
  }
  const auto head_dim = [&] {
    const int step = below(14);
    return step == 13 ? 512 : 64 + 16 * step;
  };
  constexpr DType kTypes[] = {DType::kF32, DType::kBf16, DType::kF16};
  KernelSpec spec;
  spec.kernel = static_cast<KernelKind>(below(5));
  spec.head_dim = spec.v_head_dim = head_dim();
  spec.type = spec.out = kTypes[below(3)];
  if (spec.kernel == KernelKind::kMerge) return spec;
  if (below(2)) spec.v_head_dim = head_dim();
  const auto format = [&](int dim) {
    const KvFormat* drawn;
    do {
      drawn = formats[below(formats.size())];
    } while (!CheckFormat(*drawn, dim).ok());
    return drawn;
  };
  spec.k_format = format(spec.head_dim);
  spec.v_format = format(spec.v_head_dim);
  spec.page_size = 1 + below(65536);
  spec.order = below(2) ? SlotOrder::kHnd : SlotOrder::kNhd;
  if (spec.kernel == KernelKind::kStore || spec.kernel == KernelKind::kGather) {
    return spec;
  }
  spec.group = 1 + below(kMaxGroup);
  spec.out = kTypes[below(3)];
  spec.mask = static_cast<MaskKind>(below(3));
  spec.sinks = below(2) != 0;
  spec.alibi = below(2) != 0;
  if (below(2)) spec.sparse_block = 1 + below(65536);
  if (below(2)) spec.window = static_cast<int>(rng() >> 1);
  if (below(2)) {
    // Any positive finite f32, subnormals included.
    do {
      const unsigned bits = rng() & 0x7fffffff;
      std::memcpy(&spec.softcap, &bits, sizeof(bits));
    } while (!std::isfinite(spec.softcap));
  }
  if (spec.softcap == 0 && !spec.alibi && below(2)) {
    for (int i = 0; i < kScoreDigits; ++i) {
      spec.score += "0123456789abcdef"[below(16)];
    }
  }
  if (spec.kernel == KernelKind::kDecode) {
    spec.q_max = 1 + below(kMaxDecodeTokens);
  }
  if (spec.kernel == KernelKind::kExtend) {
    spec.compute = Compute::kFp8;
    if (!ValidateSpec(spec).ok()) spec.compute = Compute::k16Bit;
  }
  return spec;
}

// An attribute "" of the dialect arrives as a view without memory.
TEST(ParseSpec, NullTextIsRefusedLikeAnEmptyOne) {
  const absl::Status status = ParseSpec(absl::string_view()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status, ParseSpec("").status());
}

TEST(SpecProperty, ParsingTheTextGivesTheSpecBack) {
  std::mt19937 rng(20250101);
  for (int i = 0; i < 20000; ++i) {
    const KernelSpec spec = RandomSpec(rng);
    ASSERT_TRUE(ValidateSpec(spec).ok()) << spec.Text() << ValidateSpec(spec);
    const absl::StatusOr<KernelSpec> parsed = ParseSpec(spec.Text());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_EQ(*parsed, spec) << spec.Text();
    ASSERT_EQ(parsed->Text(), spec.Text());
  }
}

// Byte noise in a valid text is parsed or refused, and what is parsed is
// canonical.
TEST(SpecProperty, DamagedTextIsRefusedOrCanonical) {
  std::mt19937 rng(7);
  const std::string text =
      "decode/e4m3_row/d128/g4/page16/bf16/softcap=30.5/v=bf16/window=12";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = text;
    const size_t at = rng() % damaged.size();
    if (rng() % 2) {
      damaged[at] = static_cast<char>(rng());
    } else {
      damaged.erase(at, 1 + rng() % 3);
    }
    const absl::StatusOr<KernelSpec> spec = ParseSpec(damaged);
    if (!spec.ok()) continue;
    ++accepted;
    const absl::StatusOr<KernelSpec> again = ParseSpec(spec->Text());
    ASSERT_TRUE(again.ok()) << damaged << again.status();
    ASSERT_EQ(*again, *spec) << damaged;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 20000);
}

// A hand-filled field that the kernel's text does not print would be lost.
TEST(ValidateSpec, FieldsTheTextDoesNotPrintStayAtTheirDefault) {
  const KernelSpec store = *ParseSpec("store/bf16/d64/g1/page16/bf16");
  const KernelSpec merge = *ParseSpec("merge/d64/bf16");
  std::vector<KernelSpec> wrong(9, store);
  KernelSpec sloped = store, sparse = store, scored = store;
  scored.score = std::string(kScoreDigits, '0');
  sloped.alibi = true;
  sparse.sparse_block = 16;
  wrong[0].group = 4;
  wrong[1].out = DType::kF32;
  wrong[2].mask = MaskKind::kFull;
  wrong[3].window = 5;
  wrong[4].softcap = 30;
  wrong[5].sinks = true;
  wrong[6].q_max = 2;
  wrong[7].k_format = nullptr;
  wrong[8].page_size = 0;
  wrong.resize(13, merge);
  wrong[9].k_format = store.k_format;
  wrong[10].page_size = 16;
  wrong[11].v_head_dim = 128;
  wrong[12].order = SlotOrder::kHnd;
  wrong.push_back(sloped);
  wrong.push_back(sparse);
  wrong.push_back(scored);
  wrong.push_back(*ParseSpec("decode/e4m3_row/d128/g4/page16/bf16"));
  wrong.back().compute = Compute::kFp8;
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(ValidateSpec(wrong[i]).code(), kInvalid) << i;
  }
  EXPECT_TRUE(ValidateSpec(store).ok());
  EXPECT_TRUE(ValidateSpec(merge).ok());
}

TEST(ValidateSpec, NumbersOutOfRange) {
  const KernelSpec decode = *ParseSpec("decode/bf16/d64/g1/page16/bf16");
  std::vector<KernelSpec> wrong(8, decode);
  wrong[0].window = -1;
  wrong[1].softcap = -1;
  wrong[2].softcap = std::numeric_limits<float>::infinity();
  wrong[3].softcap = std::nanf("");
  wrong[4].q_max = 0;
  wrong[5].group = 129;
  wrong[6].sparse_block = -1;
  wrong[7].sparse_block = 65537;
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(ValidateSpec(wrong[i]).code(), kInvalid) << i;
  }
}

TEST(DTypes, NamesAndSizes) {
  for (DType type : {DType::kF32, DType::kBf16, DType::kF16}) {
    const absl::StatusOr<DType> parsed = ParseDType(DTypeName(type));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, type);
    EXPECT_EQ(DTypeBytes(type), type == DType::kF32 ? 4 : 2);
  }
}

}  // namespace
}  // namespace kvforge

// The memory model against sums worked out by hand from the layout.
#include "compiler/tile/memory_model.h"

#include <gtest/gtest.h>

#include <string>

namespace kvforge {
namespace {

KernelSpec Spec(const char* text) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : KernelSpec();
}

struct BytesCase {
  const char* name;
  const char* spec;
  Tile tile;
  int bytes;
};

class SharedBytesByHand : public ::testing::TestWithParam<BytesCase> {};

TEST_P(SharedBytesByHand, AreThoseOfTheLayout) {
  EXPECT_EQ(SharedBytes(Spec(GetParam().spec), GetParam().tile),
            GetParam().bytes);
}

// Rows of 64-byte lines have no pad. Other pitches are an odd number of 16-byte
// units: 80 -> 5 * 16; 160 -> 11 * 16 = 176; 40 -> 3 * 16 = 48; 112 -> 7 * 16.
INSTANTIATE_TEST_SUITE_P(
    Tile, SharedBytesByHand,
    ::testing::Values(
        // stage 16 * 2 * (128 + 4) = 4224; 4 warps * 3 stages = 50688; exchange
        // 4 * 8 * (64 * 4 + 8 + 16) = 8960; notes and barriers
        // 3 * (4 * 16 + 16); 64
        BytesCase{"decode_e4m3_row",
                  "decode/e4m3_row/d128/g4/page16/bf16",
                  {8, 64, 3, 4},
                  59952},
        // 4 * 4224 + 8960 + 80 + 64
        BytesCase{"decode_one_stage",
                  "decode/e4m3_row/d128/g4/page16/bf16",
                  {8, 64, 1, 4},
                  26000},
        // 16896, exchange 4 * 16 * 280 = 17920, 80 + 64
        BytesCase{"decode_sixteen_rows",
                  "decode/e4m3_row/d128/g16/page16/bf16",
                  {16, 64, 1, 4},
                  34960},
        // sides 64 + 4 + 8 = 76; 16 * 152 = 2432; 4 * 4 * 2432 + 8960 + 320 +
        // 64
        BytesCase{"decode_nvfp4_row",
                  "decode/nvfp4_row/d128/g4/page16/bf16",
                  {8, 64, 4, 4},
                  48256},
        // block scales of d80: 5 bytes, padded to 8: 48 + 4 + 8 = 60; 16 * 120;
        // 4 * 4 * 1920 + 8960 + 320 + 64
        BytesCase{"decode_nvfp4_row_d80",
                  "decode/nvfp4_row/d80/g4/page16/bf16",
                  {8, 64, 4, 4},
                  40064},
        // Q 8 * 512 * 2 = 8192, then 2 * 2 * 16 * (1024 + 1024), exchange 2 * 8
        // * 280 = 4480, 2 * (2 * 16 + 16) + 64
        BytesCase{"decode_query_in_shared",
                  "decode/bf16/d512/g4/page16/bf16",
                  {8, 32, 2, 2},
                  143904},
        // K 256, V 64 + 4 + 8: 16 * 332 = 5312; 2 warps * 2 stages; 4480 + 96 +
        // 64
        BytesCase{"decode_mixed",
                  "decode/bf16/d128/g1/page16/bf16/v=nvfp4_row",
                  {8, 32, 2, 2},
                  25888},
        // Q 128 * 256 = 32768; stage 64 * 2 * 256 = 32768
        BytesCase{"extend_bf16",
                  "extend/bf16/d128/g4/page16/bf16",
                  {128, 64, 2, 4},
                  98304},
        // Q 64 * 160 = 10240; stage 64 * 2 * 80 = 10240
        BytesCase{"extend_e4m3_tensor_d80",
                  "extend/e4m3_tensor/d80/g2/page16/f16",
                  {64, 64, 1, 4},
                  20480},
        // Q 64 * 384; K 192 + 4; V 128 + 4; stage
        // 64 * 328 = 20992; 24576 + 41984
        BytesCase{"extend_dv",
                  "extend/e4m3_row/d192/g4/page16/bf16/dv=128",
                  {64, 64, 2, 4},
                  66560},
        // Q 32 * 1024; stage 32 * 2 * 1024 = 65536
        BytesCase{"extend_d512",
                  "extend/bf16/d512/g1/page16/bf16",
                  {32, 32, 1, 4},
                  98304},
        // an f32 query is two 16-bit operands: 2 * 128 * 256 and 2 * 32768
        BytesCase{"extend_f32_query",
                  "extend/bf16/d128/g4/page16/f32",
                  {128, 64, 2, 4},
                  131072},
        // so is an f16 query over a bf16 K, but not over an f16 one
        BytesCase{"extend_f16_query_of_bf16_keys",
                  "extend/bf16/d128/g4/page16/f16",
                  {128, 64, 2, 4},
                  131072},
        BytesCase{"extend_f16_query_of_f16_keys",
                  "extend/f16/d128/g4/page16/f16",
                  {128, 64, 2, 4},
                  98304},
        // Q 32768; an image 2 * 128 keys * 128 bytes and 4 * 144 + 8 * 4 of V's
        // terms, 4 of them; codes and scales 128 * 132, three times; 8 barriers
        BytesCase{"extend_warpgroups",
                  "extend/e4m3_row/d128/g4/page16/bf16",
                  {128, 128, 4, 8, true},
                  217024},
        // 4 * (32768 + K's terms 4 * 144 + V's 4 * 144 + 3 * 32 + 16); two
        // items of q 32768, a factor a row 4 * 128, lengths 48 and 3 barriers
        BytesCase{"extend_images",
                  "extend/e4m3_row/d128/g4/page16/bf16",
                  {128, 128, 4, 8, true, true},
                  202832},
        // 32768; 3 * (16384 + 4 * 80 + 16); 3 * 64 * (64 + 8 + 4); 6 barriers
        BytesCase{"extend_warpgroups_nvfp4_row",
                  "extend/nvfp4_row/d128/g4/page16/bf16",
                  {128, 64, 3, 8, true},
                  97568},
        // Q 49152; 4 * (3 * 64 * 128 + 336); K's 3 * 64 * 384; 64
        BytesCase{"extend_warpgroups_mixed",
                  "extend/bf16/d192/g4/page16/bf16/dv=128/v=nvfp4_row",
                  {128, 64, 4, 8, true},
                  222592},
        // q 16384; 4 of K's 16384 and 4 lanes * 36 * 4 of its terms, and of
        // V's raw 16384 + 512; 2 of V's 16384 + 2 * 576; 12 barriers
        BytesCase{"extend_fp8",
                  "extend/e4m3_row/d128/g4/page16/bf16/compute=fp8",
                  {128, 128, 4, 8, true},
                  186976},
        // without row scales: 16384 * (1 + 2 * 3 + 2) + 10 barriers
        BytesCase{"extend_fp8_tensor",
                  "extend/e4m3_tensor/d128/g4/page16/bf16/compute=fp8",
                  {128, 128, 3, 8, true},
                  147536},
        // which decode keeps in shared memory: 2 * 8 * 256 + 59952
        BytesCase{"decode_f32_query",
                  "decode/e4m3_row/d128/g4/page16/f32",
                  {8, 64, 3, 4},
                  64048},
        BytesCase{
            "store", "store/nvfp4_row/d128/g1/page16/bf16", {16, 0, 1, 4}, 0},
        BytesCase{"merge", "merge/d128/bf16", {4, 0, 1, 4}, 0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Registers, CountFragments) {
  // 32 rows x 128 columns / 32 lanes + 32 x 64 / 32 + 56
  EXPECT_EQ(RegistersPerThread(Spec("extend/bf16/d128/g4/page16/bf16"),
                               {128, 64, 2, 4}),
            128 + 64 + 56);
  // 4 warps in 2 x 2: 16 rows, 256 of 512 columns each
  EXPECT_EQ(RegistersPerThread(Spec("extend/e4m3_row/d512/g4/page16/bf16"),
                               {32, 64, 2, 4}),
            128 + 32 + 56);
  // q: 16 k-steps of 16 for 8 columns, 2 registers each; out: 16 tiles of 16 x
  // 8
  EXPECT_EQ(RegistersPerThread(Spec("decode/e4m3_row/d256/g4/page16/bf16"),
                               {8, 64, 3, 4}),
            32 + 64 + 60);
}

TEST(Registers, OfWarpgroupsAreAConsumers) {
  // 64 rows a warpgroup: 128 / 2 for the output, half the keys for scores, a
  // fourth for their weights, and 40; 10 where scales are a row's
  EXPECT_EQ(RegistersPerThread(Spec("extend/e4m3_tensor/d128/g4/page16/bf16"),
                               {128, 128, 4, 8, true}),
            64 + 64 + 32 + 40);
  EXPECT_EQ(RegistersPerThread(Spec("extend/e4m3_row/d128/g4/page16/bf16"),
                               {128, 128, 4, 8, true}),
            64 + 64 + 32 + 40 + 10);
  // What bf16 weights lose besides.
  EXPECT_EQ(RegistersPerThread(Spec("extend/bf16/d128/g4/page16/bf16"),
                               {128, 64, 4, 8, true}),
            64 + 32 + 16 + 16 + 40);
  // In fp8 64 for the output, 64 for scores, 32 for half a tile's product, 16
  // for weights, and 40.
  const KernelSpec fp8 =
      Spec("extend/e4m3_row/d128/g4/page16/bf16/compute=fp8");
  EXPECT_EQ(RegistersPerThread(fp8, {128, 128, 4, 8, true}),
            64 + 64 + 32 + 16 + 40);
  EXPECT_EQ(RegisterLimit(fp8, {128, 128, 4, 8, true}, **FindTarget("sm_90")),
            216);
  EXPECT_EQ(BlockThreads(fp8, {128, 128, 4, 8, true}), 384);
  // Feeders that copy two kinds of scales, but not of images.
  const KernelSpec nvfp4_row = Spec("extend/nvfp4_row/d64/g4/page16/bf16");
  EXPECT_EQ(RegistersPerThread(nvfp4_row, {128, 64, 4, 8, true}),
            32 + 32 + 16 + 40 + 24);
  EXPECT_EQ(RegistersPerThread(nvfp4_row, {128, 64, 4, 8, true, true}),
            32 + 32 + 16 + 40 + 10);
  // Features by the keys of a tile: ALiBi 24, a mask 20, softcap and window 8
  // each for 128.
  const KernelSpec features = Spec(
      "extend/e4m3_tensor/d64/g4/page16/bf16/alibi=1/mask=custom/softcap=30/"
      "window=99");
  EXPECT_EQ(RegistersPerThread(features, {128, 128, 4, 8, true}),
            32 + 64 + 32 + 40 + 24 + 20 + 8 + 8);
  EXPECT_EQ(RegistersPerThread(features, {128, 64, 4, 8, true}),
            32 + 32 + 16 + 40 + 12 + 10 + 4 + 4);
  // Feeders keep more where they read a mask.
  const GpuTarget& target = **FindTarget("sm_90");
  EXPECT_EQ(RegisterLimit(features, {128, 64, 4, 8, true}, target), 192);
  EXPECT_EQ(RegistersPerThread(
                Spec("extend/nvfp4_row/d64/g4/page16/bf16/mask=custom"),
                {128, 64, 4, 8, true}),
            32 + 32 + 16 + 40 + 10 + 10);
}

TEST(Registers, LimitIsTheShareOfTheFile) {
  const GpuTarget& target = **FindTarget("sm_80");
  const KernelSpec extend = Spec("extend/bf16/d128/g4/page16/bf16");
  EXPECT_EQ(RegisterLimit(extend, {128, 64, 2, 4}, target), 255);
  // 65536 / 256 = 256
  EXPECT_EQ(RegisterLimit(extend, {128, 64, 2, 8}, target), 255);
  // 170 rounded down
  EXPECT_EQ(RegisterLimit(extend, {128, 64, 2, 12}, target), 168);
  EXPECT_EQ(RegisterLimit(extend, {256, 64, 2, 16}, target), 128);
  // Consumers take registers over from the warps that fill slots.
  EXPECT_EQ(RegisterLimit(extend, {128, 64, 4, 8, true}, target), 216);
  EXPECT_EQ(RegisterLimit(extend, {128, 64, 4, 8, true, true}, target), 232);
  // 65536 / 256, and 65536 / 384 = 170: four warps copy.
  const KernelSpec decode = Spec("decode/bf16/d128/g4/page16/bf16");
  EXPECT_EQ(RegisterLimit(decode, {8, 64, 2, 4}, target), 255);
  EXPECT_EQ(RegisterLimit(decode, {8, 128, 2, 8}, target), 168);
}

TEST(BlockThreads, CountWarpsThatCopy) {
  const KernelSpec extend = Spec("extend/bf16/d128/g4/page16/bf16");
  EXPECT_EQ(BlockThreads(extend, {128, 64, 2, 4}), 128);
  // A warpgroup that fills slots.
  EXPECT_EQ(BlockThreads(extend, {128, 64, 4, 8, true}), 384);
  EXPECT_EQ(BlockThreads(extend, {128, 64, 4, 8, true, true}), 384);
  const KernelSpec decode = Spec("decode/bf16/d128/g4/page16/bf16");
  EXPECT_EQ(BlockThreads(decode, {8, 128, 2, 8}), 384);
  EXPECT_EQ(BlockThreads(decode, {8, 64, 2, 4}), 256);
  EXPECT_EQ(BlockThreads(decode, {8, 32, 2, 2}), 128);
  // K's and V's copies have a warp each.
  EXPECT_EQ(BlockThreads(decode, {8, 16, 2, 1}), 96);
}

TEST(DecodeHeads, AreAPowerOfTwoOfWarpsOrOne) {
  const KernelSpec spec = Spec("decode/bf16/d128/g4/page16/bf16");
  EXPECT_EQ(DecodeHeadsPerBlock(spec, {8, 128, 2, 8}), 8);
  EXPECT_EQ(DecodeHeadsPerBlock(spec, {8, 192, 2, 12}), 4);
  // q in shared memory serves one head.
  EXPECT_EQ(DecodeHeadsPerBlock(Spec("decode/bf16/d512/g4/page16/bf16"),
                                {8, 32, 2, 2}),
            1);
}

TEST(Warps, ExtendSplitsWideOutputs) {
  EXPECT_EQ(ExtendDimSplit(64), 1);
  EXPECT_EQ(ExtendDimSplit(256), 1);
  EXPECT_EQ(ExtendDimSplit(512), 2);
  const KernelSpec wide = Spec("extend/bf16/d512/g1/page16/bf16");
  EXPECT_EQ(ExtendWarpRows(wide, {32, 64, 1, 4}), 16);
  EXPECT_EQ(ExtendWarpRows(wide, {32, 64, 1, 3}), 0);
}

TEST(Warps, StoreRowsTakeAPowerOfTwoOfLanes) {
  // 16 elements a lane: 4, 5 -> 8, 8, 12 -> 16, 32 lanes.
  EXPECT_EQ(StoreRowsPerWarp(Spec("store/bf16/d64/g1/page16/bf16")), 8);
  EXPECT_EQ(StoreRowsPerWarp(Spec("store/bf16/d80/g1/page16/bf16")), 4);
  EXPECT_EQ(StoreRowsPerWarp(Spec("store/bf16/d128/g1/page16/bf16")), 4);
  EXPECT_EQ(StoreRowsPerWarp(Spec("store/bf16/d64/g1/page16/bf16/dv=192")), 2);
  EXPECT_EQ(StoreRowsPerWarp(Spec("store/bf16/d512/g1/page16/bf16")), 1);
}

}  // namespace
}  // namespace kvforge

// Well-formed files, and every way of damage we could think of: an error each
// time, under sanitizers too.
#include "tools/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;

std::string File(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string Bytes(size_t count) {
  std::string data;
  for (size_t i = 0; i < count; ++i) data.push_back(static_cast<char>(i));
  return data;
}

const char kGoodHeader[] =
    R"({"__metadata__":{"case":"x"},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[3,11]},)"
    R"("b":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]},)"
    R"("e":{"dtype":"I64","shape":[0,5],"data_offsets":[3,3]}})";

TEST(Safetensors, ReadsMetadataAndTensors) {
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Parse(File(kGoodHeader, Bytes(11)), "good");
  ASSERT_TRUE(file.ok()) << file.status();
  const SafetensorsFile moved = std::move(*file);
  EXPECT_EQ(moved.metadata().at("case"), "x");
  ASSERT_EQ(moved.tensors().size(), 3u);
  const absl::StatusOr<Tensor> b = moved.Find("b", "U8", {3, -1});
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(b->Values<uint8_t>(), (std::vector<uint8_t>{0, 1, 2}));
  EXPECT_EQ(b->ElementCount(), 3);
  // Byte 3 of the file's data is not aligned to 4.
  const std::vector<uint32_t> a = moved.tensors().at("a").Values<uint32_t>();
  EXPECT_EQ(a, (std::vector<uint32_t>{0x06050403, 0x0a090807}));
  EXPECT_EQ(moved.tensors().at("e").ElementCount(), 0);
  EXPECT_TRUE(moved.Has("a"));
  EXPECT_FALSE(moved.Has("c"));
}

TEST(Safetensors, HeaderMayBePaddedWithSpaces) {
  EXPECT_TRUE(SafetensorsFile::Parse(
                  File(absl::StrCat(kGoodHeader, "      "), Bytes(11)), "pad")
                  .ok());
  EXPECT_TRUE(SafetensorsFile::Parse(File("{}", ""), "empty").ok());
}

TEST(Safetensors, FindNamesWhatItFound) {
  const absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::Parse(File(kGoodHeader, Bytes(11)), "good.st");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(std::string(file->Find("z", "U8", {1}).status().message()),
              HasSubstr("good.st: tensor 'z' is missing"));
  EXPECT_THAT(std::string(file->Find("b", "U8", {3}).status().message()),
              HasSubstr("tensor 'b' is U8 [3, 1], expected U8 [3]"));
  EXPECT_FALSE(file->Find("b", "I8", {3, 1}).ok());
  EXPECT_FALSE(file->Find("b", "U8", {3, 2}).ok());
}

// The header of a file whose only tensor, "a", has these JSON values.
std::string OneTensor(const char* dtype, const char* shape,
                      const char* offsets) {
  return absl::StrCat(R"({"a":{"dtype":)", dtype, R"(,"shape":)", shape,
                      R"(,"data_offsets":)", offsets, "}}");
}

struct Hostile {
  std::string header;
  size_t data_bytes;
  const char* fault;
};

class HostileHeader : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileHeader, IsRefused) {
  const absl::Status status =
      SafetensorsFile::Parse(
          File(GetParam().header, Bytes(GetParam().data_bytes)), "hostile")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().fault))
      << GetParam().header;
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, HostileHeader,
    ::testing::Values(
        Hostile{"", 0, "not a JSON object"}, Hostile{"[]", 0, "JSON object"},
        Hostile{"{", 0, "JSON object"}, Hostile{"\xff\xfe", 0, "JSON object"},
        Hostile{R"({"a":1})", 0, "needs dtype, shape and data_offsets"},
        Hostile{R"({"a":{"dtype":"U8","shape":[0]}})", 0, "needs dtype"},
        Hostile{R"({"__metadata__":[]})", 0, "__metadata__ is no map"},
        Hostile{R"({"__metadata__":{"k":1}})", 0, "'k' is not a string"},
        Hostile{R"({"a":{},"a":{}})", 0, "'a' appears twice"},
        Hostile{R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, "'dtype' appears"},
        Hostile{R"({"a":[[[[[[1]]]]]]})", 0, "nested too deep"},
        Hostile{OneTensor("7", "[1]", "[0,1]"), 1, "dtype is not a"},
        Hostile{OneTensor("\"U7\"", "[1]", "[0,1]"), 1, "dtype 'U7'"},
        Hostile{OneTensor("\"U8\"", "1", "[0,1]"), 1, "shape is not"},
        Hostile{OneTensor("\"U8\"", "[-1]", "[0,1]"), 1, "no extent"},
        Hostile{OneTensor("\"U8\"", "[1.0]", "[0,1]"), 1, "no extent"},
        Hostile{OneTensor("\"U8\"", "[18446744073709551615]", "[0,1]"), 1,
                "no extent"},
        Hostile{OneTensor("\"U8\"", "[2]", "[0,1]"), 1, "do not fill"},
        Hostile{OneTensor("\"F32\"", "[1]", "[0,1]"), 1, "do not fill"},
        // products that wrap to 1 and to 0
        Hostile{OneTensor("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0,
                "do not fill"},
        Hostile{OneTensor("\"F64\"", "[2305843009213693952]", "[0,0]"), 0,
                "do not fill"},
        Hostile{OneTensor("\"U8\"", "[1]", "[0]"), 1, "data_offsets"},
        Hostile{OneTensor("\"U8\"", "[1]", "[1,0]"), 1, "data_offsets"},
        Hostile{OneTensor("\"U8\"", "[1]", "[-1,0]"), 1, "data_offsets"},
        Hostile{OneTensor("\"U8\"", "[1]", "[0,1e0]"), 1, "data_offsets"},
        Hostile{OneTensor("\"U8\"", "[9]", "[0,9]"), 1, "of 1 bytes"},
        Hostile{OneTensor("\"U8\"", "[1]",
                          "[9223372036854775806,"
                          "9223372036854775807]"),
                1, "an overlap or a gap"},
        Hostile{OneTensor("\"U8\"", "[1]", "[1,2]"), 2, "gap"},
        Hostile{OneTensor("\"U8\"", "[1]", "[0,1]"), 2, "of 2 bytes"},
        Hostile{"{}", 1, "end at byte 0 of 1 bytes"},
        Hostile{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                3, "tensor 'b' begins at byte 1 of the data, expected 2"}));

TEST(Safetensors, HeaderLengthIsBounded) {
  for (const uint64_t length : {uint64_t{1}, uint64_t{kMaxHeaderBytes + 1},
                                ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    const absl::Status status = SafetensorsFile::Parse(bytes, "short").status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("its header claims ", length)));
  }
  for (size_t size = 0; size < 8; ++size) {
    EXPECT_FALSE(SafetensorsFile::Parse(std::string(size, '\0'), "tiny").ok());
  }
}

TEST(Safetensors, DeepNestingDoesNotExhaustTheStack) {
  const std::string deep = absl::StrCat("{\"a\":", std::string(1 << 20, '['));
  EXPECT_FALSE(SafetensorsFile::Parse(File(deep, ""), "deep").ok());
}

std::string ReadGolden(const char* name) {
  std::ifstream stream(
      absl::StrCat(KVFORGE_TEST_DATA, "/golden/attention/", name),
      std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(stream)),
                     std::istreambuf_iterator<char>());
}

// Cuts at every byte of the header and at some of the data.
TEST(Safetensors, TruncationAnywhereIsRefused) {
  const std::string whole = ReadGolden("extend_nvfp4_d64_sinks.safetensors");
  ASSERT_TRUE(SafetensorsFile::Parse(whole, "whole").ok());
  for (size_t size = 0; size < whole.size(); size += size < 4096 ? 7 : 9973) {
    EXPECT_FALSE(SafetensorsFile::Parse(whole.substr(0, size), "cut").ok())
        << size;
  }
  EXPECT_FALSE(SafetensorsFile::Parse(whole + "x", "longer").ok());
}

// A flipped byte gives an error or tensors that lie within the file.
TEST(Safetensors, DamagedHeadersNeverReachOutside) {
  const std::string whole = File(kGoodHeader, Bytes(11));
  std::mt19937 rng(3);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = whole;
    for (int flips = 1 + static_cast<int>(rng() % 3); flips > 0; --flips) {
      damaged[rng() % (sizeof(kGoodHeader) + 7)] = static_cast<char>(rng());
    }
    const absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Parse(damaged, "damaged");
    if (!file.ok()) continue;
    ++accepted;
    size_t total = 0;
    for (const auto& [name, tensor] : file->tensors()) {
      total += tensor.bytes.size();
      // Reads each byte, for the sanitizers.
      EXPECT_EQ(tensor.Values<uint8_t>().size(), tensor.bytes.size());
    }
    EXPECT_EQ(total, 11u);
  }
  EXPECT_GT(accepted, 0);
}

TEST(Safetensors, OpenReadsFilesAndNamesThoseItCannot) {
  const std::string path = absl::StrCat(
      KVFORGE_TEST_DATA, "/golden/attention/decode_bf16_d512.safetensors");
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->Find("k_codes", "BF16", {49, 1, 512}).ok());

  const absl::Status missing =
      SafetensorsFile::Open("/nonexistent/x.safetensors").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("/nonexistent/x.safetensors"));
  // A folder opens but does not read.
  EXPECT_FALSE(SafetensorsFile::Open(KVFORGE_TEST_DATA).ok());
}

}  // namespace
}  // namespace kvforge

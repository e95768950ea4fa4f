// Texts that are no score function: each is a Status that says where, what is
// allowed and what to do, whatever the bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/compiler.h"

namespace kvforge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHead[] =
    "func.func @f(%s: f32, %i: i32, %j: i32, %h: i32) -> f32 {\n";

std::string Body(const std::string& body) {
  return absl::StrCat(kHead, body, "\n}\n");
}

struct BadText {
  std::string text;
  const char* message;
};

class BadScoreFunction : public ::testing::TestWithParam<BadText> {};

TEST_P(BadScoreFunction, IsRefusedByNameAndLine) {
  const absl::Status status = ReadScoreFunction(GetParam().text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Words, BadScoreFunction,
    ::testing::Values(
        BadText{"",
                "the text has 0 operations at its top; supported: one "
                "func.func @score("},
        BadText{"hello", "line 1: 'hello' is no word of the language"},
        BadText{Body("%r = scf.if %s : f32"), "line 2: 'scf.if' is no word"},
        BadText{Body("%r = \"arith.addf\"(%s, %s) : (f32, f32) -> f32"),
                "line 2: the byte '\"' belongs to no operation"},
        BadText{Body("%r = arith.mulf %s, %s fastmath<fast> : f32"),
                "'fastmath' is no word"},
        BadText{std::string("\0\xff", 2), "the byte 0x0 belongs"},
        BadText{Body("%r = math.tanh %s : f80\nreturn %r : f80"),
                "line 2: 'f80' is no word"},
        BadText{std::string(1 << 17, ' '), "the text has 131072 bytes"},
        BadText{Repeated("module {\n", 17), "line 17: too many brackets"},
        BadText{Repeated("(", 257) + Repeated(")", 257),
                "too many brackets; supported: 256 '(' in each other"},
        BadText{Repeated("(", 5000), "too many brackets"}));

// Function types in each other, as deep as they may be: parser and printer
// recurse, here on a thread with a small stack.
TEST(ScoreFunctionText, NestsNoDeeperThanASmallStackHolds) {
  constexpr size_t kStackBytes = size_t{512} << 10;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  const auto read = [](void*) -> void* {
    constexpr int kDeep = 255;  // and the parameters' own
    const std::string text =
        absl::StrCat("func.func @f(%s: ", Repeated("(", kDeep), "f32",
                     Repeated(") -> f32", kDeep), ") -> f32 {\n}");
    const absl::Status status = ReadScoreFunction(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                Not(HasSubstr("too many brackets")));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, read, nullptr), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

INSTANTIATE_TEST_SUITE_P(
    Functions, BadScoreFunction,
    ::testing::Values(
        BadText{Body("return %s : f32") + Body("return %s : f32"),
                "score function: "},
        BadText{"func.func private @f(f32, i32, i32, i32) -> f32",
                "a function without a body"},
        BadText{"module { module { } }", "the text has builtin.module"},
        BadText{"func.func @f(%s: f32) -> f32 { return %s : f32 }",
                "has a function of ('f32'); a score function is (score: f32, "},
        BadText{"func.func @f(%s: f32, %i: i32, %j: i32, %h: i32) { return }",
                "has a function that returns (); a score function is "},
        BadText{"func.func @f(%s: f32, %i: i32, %j: i32, %h: i32) -> i32 { "
                "return %i : i32 }",
                "has a function that returns ('i32')"},
        BadText{absl::StrCat(
                    "func.func @f(%s: f32, %i: i32, %j: i32, %h: i32) -> f32 ",
                    "attributes {f16} { return %s : f32 }"),
                "the function has attributes"},
        BadText{Body("return %s : f32\n^b:\nreturn %s : f32"),
                "has a function of 2 blocks; a score function is one block"},
        BadText{Body(""), "line "}));

INSTANTIATE_TEST_SUITE_P(
    Operations, BadScoreFunction,
    ::testing::Values(
        BadText{Body("%r = math.sin %s : f32\nreturn %r : f32"),
                "line 2: 'math.sin' op may not stand in a score function; "
                "allowed: arith.constant, arith.cmpf, "},
        BadText{Body("%r = arith.nothing %s : f32\nreturn %r : f32"),
                "line 2: "},
        BadText{Body("%w = arith.extf %s : f32 to f64\n%r = math.absf %s : "
                     "f32\nreturn %r : f32"),
                "'arith.extf' op may not stand"},
        BadText{Body("%w = arith.sitofp %i : i32 to f64\nreturn %s : f32"),
                "'arith.sitofp' op takes ('i32') to ('f64'); in a score "
                "function it takes (i32); convert the operands"},
        BadText{Body("%w = arith.constant 1.0 : f64\nreturn %s : f32"),
                "'arith.constant' op is no f32, i32 or i1"},
        BadText{Body("%r = func.call @f(%s, %i, %j, %h) : (f32, i32, i32, i32) "
                     "-> f32\nreturn %r : f32"),
                "'func.call' op may not stand"},
        BadText{Body("%r = arith.addf %t, %s : f32\nreturn %r : f32"),
                "line 2: "},
        BadText{Body("%r = arith.constant 1e999 : f32\nreturn %r : f32"),
                "line 2: "},
        BadText{Body(Repeated("%r = arith.addf %s, %s : f32\n", 2)),
                "line 3: redefinition"},
        BadText{[] {
                  std::string body;
                  std::string last = "%s";
                  for (int i = 0; i < 257; ++i) {
                    absl::StrAppend(&body, "%x", i, " = math.absf ", last,
                                    " : f32\n");
                    last = absl::StrCat("%x", i);
                  }
                  return Body(absl::StrCat(body, "return ", last, " : f32"));
                }(),
                "more than 256 operations"}));

// What is accepted after damage is read the same again from its own text.
TEST(ScoreText, DamageIsRefusedOrCanonical) {
  const std::string text = Body(
      "%d = arith.subi %i, %j : i32\n%a = math.absi %d : i32\n"
      "%f = arith.sitofp %a : i32 to f32\n%c = arith.constant -0.1 : f32\n"
      "%b = arith.mulf %f, %c : f32\n%n = arith.cmpi sle, %a, %h : i32\n"
      "%r = arith.select %n, %b, %s : f32\nfunc.return %r : f32");
  std::mt19937 random(3);
  int accepted = 0;
  for (int i = 0; i < 8000; ++i) {
    std::string damaged = text;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, 1 + random() % 8);
          break;
        case 2:  // a piece from elsewhere
          damaged.insert(at, text.substr(random() % text.size(), 12));
          break;
        default:
          damaged[at] = damaged[random() % damaged.size()];
      }
      if (damaged.empty()) damaged = " ";
    }
    const absl::StatusOr<ScoreFunction> function = ReadScoreFunction(damaged);
    if (!function.ok()) {
      ASSERT_EQ(function.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++accepted;
    const absl::StatusOr<ScoreFunction> again =
        ReadScoreFunction(function->text);
    ASSERT_TRUE(again.ok()) << again.status() << damaged;
    ASSERT_EQ(again->text, function->text);
    ASSERT_EQ(again->digest, function->digest);
  }
  EXPECT_GT(accepted, 40);
  EXPECT_LT(accepted, 6000);
}

}  // namespace
}  // namespace kvforge

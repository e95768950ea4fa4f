#include "examples/engine/scenario.h"

#include <algorithm>

#include "examples/engine/uniform.h"
#include "runtime/base/status_macros.h"

namespace kvforge::example {
namespace {

// Steps until the engine has sampled `sampled` tokens or is done.
absl::Status RunUntil(int sampled, const EngineHooks& hooks,
                      MiniEngine& engine) {
  while (!engine.Done() && engine.counts().sampled < sampled) {
    RETURN_IF_ERROR(engine.Step(hooks));
  }
  return absl::OkStatus();
}

absl::Status RunUntilDone(const EngineHooks& hooks, MiniEngine& engine) {
  while (!engine.Done()) RETURN_IF_ERROR(engine.Step(hooks));
  return absl::OkStatus();
}

}  // namespace

Texts Prompts(int vocab_size, uint64_t seed) {
  struct Shape {
    int shared_tokens;  // with the first prompt, from the start
    int own_tokens;
  };
  constexpr Shape kShapes[kSequences] = {{0, 112}, {80, 16}, {0, 10}, {96, 9}};
  Uniform random(seed);
  Texts prompts;
  for (const Shape& shape : kShapes) {
    std::vector<int> prompt;
    for (int i = 0; i < shape.shared_tokens; ++i) {
      prompt.push_back(prompts[0][i]);
    }
    for (int i = 0; i < shape.own_tokens; ++i) {
      prompt.push_back(random.Below(vocab_size));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

absl::Status RunPlainly(const Texts& prompts, const EngineHooks& hooks,
                        MiniEngine& engine) {
  for (const std::vector<int>& prompt : prompts) {
    RETURN_IF_ERROR(engine.Add(prompt, kNewTokens).status());
  }
  return RunUntilDone(hooks, engine);
}

absl::Status RunEverything(const Texts& prompts, const EngineHooks& hooks,
                           int64_t rebuilt_bytes, MiniEngine& engine) {
  EngineHooks plain = hooks;
  plain.draft = nullptr;
  RETURN_IF_ERROR(engine.Add(prompts[0], kNewTokens).status());
  RETURN_IF_ERROR(RunUntil(kNewTokens / 8, plain, engine));
  RETURN_IF_ERROR(engine.Add(prompts[1], kNewTokens).status());
  RETURN_IF_ERROR(engine.Add(prompts[2], kNewTokens).status());
  RETURN_IF_ERROR(RunUntil(kNewTokens, plain, engine));
  RETURN_IF_ERROR(RunUntil(2 * kNewTokens, hooks, engine));
  RETURN_IF_ERROR(engine.Rebuild(rebuilt_bytes));
  RETURN_IF_ERROR(RunUntilDone(hooks, engine));
  RETURN_IF_ERROR(engine.Add(prompts[3], kNewTokens).status());
  return RunUntilDone(hooks, engine);
}

std::vector<int> Draft(const Texts& texts, int vocab_size, int sequence,
                       absl::Span<const int> tokens) {
  constexpr size_t kDrafts = 3;
  constexpr size_t kWrong = 5;
  const std::vector<int>& text = texts[sequence];
  std::vector<int> drafts;
  for (size_t i = tokens.size();
       i < std::min(tokens.size() + kDrafts, text.size()); ++i) {
    drafts.push_back(i % kWrong == 0 ? (text[i] + 1) % vocab_size : text[i]);
  }
  return drafts;
}

}  // namespace kvforge::example

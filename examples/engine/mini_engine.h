// Runs sequences through a model: chunked prefill, decode, and speculative
// decode where somebody drafts tokens, over a KV cache of a given size.
//
// The oldest sequences come first. One that finds no page takes them from the
// youngest, which is computed again later: so is everything after a Rebuild.
#ifndef KVFORGE_EXAMPLES_ENGINE_MINI_ENGINE_H_
#define KVFORGE_EXAMPLES_ENGINE_MINI_ENGINE_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/engine/attention_step.h"
#include "examples/engine/page_tables.h"

namespace kvforge::example {

struct EngineSettings {
  PoolKind pools = PoolKind::kHybrid;
  int64_t cache_bytes = 0;
  StepLimits limits;
  bool reuse_prefixes = true;
};

// What the engine asks and tells its caller; `sequence` is from Add.
struct EngineHooks {
  // The token that follows the one at `position`.
  std::function<int(int sequence, int position, const Floats& logits)> sample;
  // Guesses of the tokens that follow `tokens`, any number; may be null.
  std::function<std::vector<int>(int sequence, absl::Span<const int> tokens)>
      draft;
  // The attention [q_heads * v_head_dim] of a token that is kept; may be null.
  std::function<void(int sequence, int layer, int position,
                     absl::Span<const float> out)>
      observe;
};

struct EngineCounts {
  int prefill_steps = 0;
  int decode_steps = 0;
  int sampled = 0;
  int drafted = 0;
  int drafts_kept = 0;
  int reused_tokens = 0;
  int preemptions = 0;
};

class MiniEngine {
 public:
  // `config` and `model` must outlive the engine. Refuses before anything is
  // compiled what the GPU does not serve, and before anything is allocated a
  // budget that is too small.
  static absl::StatusOr<std::unique_ptr<MiniEngine>> Create(
      Engine& engine, const ModelConfig& config, const Transformer& model,
      const EngineSettings& settings);

  // Queues a sequence and returns its number, from 0 on.
  // Errors  kInvalidArgument  no tokens, or more than the model takes
  absl::StatusOr<int> Add(std::vector<int> prompt, int new_tokens);

  bool Done() const { return running_.empty() && waiting_.empty(); }
  // One launch of each layer: a chunk of prefill if a sequence has one to do,
  // else a token of each sequence, with its drafts.
  // Errors  kResourceExhausted  the cache is too small for one sequence
  absl::Status Step(const EngineHooks& hooks);

  // A cache of another size. Its content is dropped and computed again; on a
  // GPU the launches are captured again. After an error of the new size the old
  // cache is as it was.
  absl::Status Rebuild(int64_t cache_bytes);

  const std::vector<int>& tokens(int sequence) const {
    return sequences_[sequence].tokens;
  }
  const EngineCounts& counts() const { return counts_; }
  const std::vector<PoolPlan>& pools() const { return plans_; }
  const PageAllocator& pages(int pool) const { return tables_->pool(pool); }
  int num_graphs() const { return step_->num_graphs(); }

 private:
  struct Sequence {
    std::vector<int> tokens;  // the prompt and what was generated
    size_t target = 0;        // tokens when it is done
    int cached = 0;           // its first tokens, whose K and V are cached
    SequencePages pages;
  };
  // What one sequence has in a step: tokens from position `cached` on, of which
  // those behind its last known token are guesses.
  struct Work {
    int sequence;
    std::vector<int> inputs;
  };

  MiniEngine(Engine& engine, const ModelConfig& config,
             const Transformer& model, const EngineSettings& settings)
      : engine_(engine), config_(config), model_(model), settings_(settings) {}

  void Start(Sequence& sequence);
  void Drop(Sequence& sequence);
  std::vector<int> Inputs(Phase phase, int id, int most_rows,
                          const EngineHooks& hooks);
  bool Reserve(size_t index, int num_tokens);
  std::vector<Work> Schedule(Phase phase, const EngineHooks& hooks);
  StepInput Describe(Phase phase, const std::vector<Work>& batch) const;
  absl::Status Execute(Phase phase, const std::vector<Work>& batch,
                       const EngineHooks& hooks);
  // Keeps the inputs that are right, from row `row` of the step on.
  void Accept(const Work& work, size_t row, const Floats& hidden,
              const std::vector<Floats>& attention, const EngineHooks& hooks);

  Engine& engine_;
  const ModelConfig& config_;
  const Transformer& model_;
  EngineSettings settings_;
  std::unique_ptr<AttentionStep> step_;
  std::vector<PoolPlan> plans_;
  std::vector<CachePool> pools_;
  std::unique_ptr<PageTables> tables_;
  std::vector<Sequence> sequences_;
  std::vector<int> running_;  // oldest first
  std::deque<int> waiting_;
  EngineCounts counts_;
};

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_MINI_ENGINE_H_

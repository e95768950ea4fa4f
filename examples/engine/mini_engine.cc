#include "examples/engine/mini_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/engine/block_selection.h"
#include "runtime/base/status_macros.h"

namespace kvforge::example {

absl::StatusOr<std::unique_ptr<MiniEngine>> MiniEngine::Create(
    Engine& engine, const ModelConfig& config, const Transformer& model,
    const EngineSettings& settings) {
  std::unique_ptr<MiniEngine> mini(
      new MiniEngine(engine, config, model, settings));
  RETURN_IF_ERROR(CheckServed(engine, config, settings.limits));
  mini->plans_ =
      PlanPools(config.plan, settings.pools, settings.limits.page_size);
  std::vector<PoolPlan> sized = mini->plans_;
  RETURN_IF_ERROR(SizePools({settings.cache_bytes, settings.limits.sequences,
                             settings.limits.prefill_tokens},
                            sized));
  ASSIGN_OR_RETURN(mini->step_,
                   AttentionStep::Create(engine, config, settings.limits));
  RETURN_IF_ERROR(mini->Rebuild(settings.cache_bytes));
  return mini;
}

absl::Status MiniEngine::Rebuild(int64_t cache_bytes) {
  std::vector<PoolPlan> plans = plans_;
  RETURN_IF_ERROR(SizePools({cache_bytes, settings_.limits.sequences,
                             settings_.limits.prefill_tokens},
                            plans));
  for (const int id : running_) Drop(sequences_[id]);
  pools_.clear();  // the old memory first: there may not be room for both
  for (const PoolPlan& plan : plans) {
    ASSIGN_OR_RETURN(CachePool pool,
                     CachePool::Create(engine_, config_.plan, plan));
    pools_.push_back(std::move(pool));
  }
  plans_ = std::move(plans);
  settings_.cache_bytes = cache_bytes;
  tables_ = std::make_unique<PageTables>(plans_);
  return step_->Bind(plans_, pools_);
}

absl::StatusOr<int> MiniEngine::Add(std::vector<int> prompt, int new_tokens) {
  const size_t target = prompt.size() + std::max(new_tokens, 0);
  if (prompt.empty() || target > static_cast<size_t>(config_.max_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", prompt.size(), " tokens and ", new_tokens,
                     " to follow; 1 to ", config_.max_tokens,
                     " tokens in all are supported; shorten the prompt"));
  }
  waiting_.push_back(static_cast<int>(sequences_.size()));
  sequences_.push_back({std::move(prompt), target, 0, {}});
  return waiting_.back();
}

void MiniEngine::Start(Sequence& sequence) {
  absl::Span<const int> tokens = sequence.tokens;
  if (!settings_.reuse_prefixes) tokens = tokens.subspan(0, 1);
  sequence.cached = tables_->Reuse(tokens, sequence.pages);
  counts_.reused_tokens += sequence.cached;
}

void MiniEngine::Drop(Sequence& sequence) {
  tables_->Release(sequence.pages);
  sequence.cached = 0;
}

std::vector<int> MiniEngine::Inputs(Phase phase, int id, int most_rows,
                                    const EngineHooks& hooks) {
  const Sequence& sequence = sequences_[id];
  const std::vector<int>& tokens = sequence.tokens;
  const size_t missing = tokens.size() - sequence.cached;
  if ((phase == Phase::kPrefill) != (missing > 1)) return {};
  std::vector<int> inputs(tokens.begin() + sequence.cached, tokens.end());
  size_t most = most_rows;
  if (phase == Phase::kDecode) {
    most = std::min<size_t>(settings_.limits.decode_tokens,
                            sequence.target - tokens.size());
    if (hooks.draft) {
      const std::vector<int> drafts = hooks.draft(id, tokens);
      inputs.insert(inputs.end(), drafts.begin(), drafts.end());
    }
  }
  if (config_.block_tokens > 0) {
    const int segment = config_.block_tokens * kSegmentBlocks;
    most = std::min<size_t>(most, segment - sequence.cached % segment);
  }
  inputs.resize(std::min(inputs.size(), most));
  return inputs;
}

// Pages for the running sequence at `index`; false if it has to wait.
bool MiniEngine::Reserve(size_t index, int num_tokens) {
  Sequence& sequence = sequences_[running_[index]];
  size_t victim = running_.size() - 1;
  while (!tables_->Reserve(num_tokens, sequence.pages).ok()) {
    while (victim > index &&
           sequences_[running_[victim]].pages.tables.empty()) {
      --victim;
    }
    if (victim == index) {
      // What it did get goes back.
      tables_->Commit(
          absl::MakeConstSpan(sequence.tokens).subspan(0, sequence.cached),
          sequence.pages);
      return false;
    }
    Drop(sequences_[running_[victim]]);
    ++counts_.preemptions;
  }
  return true;
}

std::vector<MiniEngine::Work> MiniEngine::Schedule(Phase phase,
                                                   const EngineHooks& hooks) {
  std::vector<Work> batch;
  int left = step_->rows(phase);
  for (size_t i = 0; i < running_.size() && left > 0; ++i) {
    Sequence& sequence = sequences_[running_[i]];
    if (sequence.pages.tables.empty()) Start(sequence);
    std::vector<int> inputs = Inputs(phase, running_[i], left, hooks);
    const int count = static_cast<int>(inputs.size());
    if (count == 0 || !Reserve(i, sequence.cached + count)) continue;
    left -= count;
    batch.push_back({running_[i], std::move(inputs)});
  }
  return batch;
}

absl::Status MiniEngine::Step(const EngineHooks& hooks) {
  while (!waiting_.empty() &&
         static_cast<int>(running_.size()) < settings_.limits.sequences) {
    running_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  if (running_.empty()) return absl::OkStatus();
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    const std::vector<Work> batch = Schedule(phase, hooks);
    if (batch.empty()) continue;
    ++(phase == Phase::kPrefill ? counts_.prefill_steps : counts_.decode_steps);
    return Execute(phase, batch, hooks);
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a KV cache of ", settings_.cache_bytes,
      " bytes does not hold one sequence of ",
      sequences_[running_[0]].tokens.size(),
      " tokens; rebuild it with more bytes, or add shorter sequences"));
}

StepInput MiniEngine::Describe(Phase phase,
                               const std::vector<Work>& batch) const {
  StepInput input;
  input.phase = phase;
  input.pools.resize(pools_.size());
  for (const Work& work : batch) {
    const Sequence& sequence = sequences_[work.sequence];
    const int count = static_cast<int>(work.inputs.size());
    input.q_indptr.push_back(input.q_indptr.back() + count);
    input.kv_lens.push_back(sequence.cached + count);
    for (size_t pool = 0; pool < pools_.size(); ++pool) {
      StepInput::Pool& to = input.pools[pool];
      to.page_tables.push_back(sequence.pages.tables[pool]);
      for (int i = 0; i < count; ++i) {
        to.slots.push_back(tables_->Slot(static_cast<int>(pool), sequence.pages,
                                         sequence.cached + i));
      }
    }
  }
  for (int layer = 0; layer < config_.num_layers(); ++layer) {
    if (config_.kinds[layer] != LayerKind::kBlockSparse) continue;
    // One selection serves all such layers: they are of one geometry.
    const int kv_heads = config_.geometry(layer).kv_heads;
    const size_t width = size_t{1} * kv_heads * step_->selected_per_head();
    input.selected.resize(batch.size() * width);
    for (size_t i = 0; i < batch.size(); ++i) {
      SelectBlocks(config_.block_tokens, kv_heads,
                   sequences_[batch[i].sequence].cached, input.kv_lens[i] - 1,
                   absl::MakeSpan(input.selected).subspan(i * width, width));
    }
    break;
  }
  return input;
}

absl::Status MiniEngine::Execute(Phase phase, const std::vector<Work>& batch,
                                 const EngineHooks& hooks) {
  std::vector<int> tokens, positions;
  for (const Work& work : batch) {
    int position = sequences_[work.sequence].cached;
    for (const int token : work.inputs) {
      tokens.push_back(token);
      positions.push_back(position++);
    }
  }
  RETURN_IF_ERROR(step_->Begin(Describe(phase, batch)));
  Floats hidden = model_.Embed(tokens);
  std::vector<Floats> attention(config_.num_layers());
  for (int layer = 0; layer < config_.num_layers(); ++layer) {
    ASSIGN_OR_RETURN(
        attention[layer],
        step_->Run(layer, model_.Project(layer, positions, hidden)));
    model_.Finish(layer, attention[layer], hidden);
  }
  size_t row = 0;
  for (const Work& work : batch) {
    Accept(work, row, hidden, attention, hooks);
    row += work.inputs.size();
    Sequence& sequence = sequences_[work.sequence];
    if (sequence.tokens.size() < sequence.target) continue;
    tables_->Release(sequence.pages);
    running_.erase(std::find(running_.begin(), running_.end(), work.sequence));
  }
  return absl::OkStatus();
}

void MiniEngine::Accept(const Work& work, size_t row, const Floats& hidden,
                        const std::vector<Floats>& attention,
                        const EngineHooks& hooks) {
  Sequence& sequence = sequences_[work.sequence];
  const size_t known = sequence.tokens.size();
  counts_.drafted += static_cast<int>(
      std::max(work.inputs.size() + sequence.cached, known) - known);
  for (const int input : work.inputs) {
    // The token before this one was kept; is this the one that follows it?
    const size_t position = sequence.cached;
    if (position >= sequence.tokens.size() ||
        input != sequence.tokens[position]) {
      break;
    }
    for (int layer = 0; hooks.observe && layer < config_.num_layers();
         ++layer) {
      const LayerGeometry& geometry = config_.geometry(layer);
      const size_t width = geometry.q_heads * geometry.v_head_dim;
      hooks.observe(
          work.sequence, layer, static_cast<int>(position),
          absl::MakeConstSpan(attention[layer]).subspan(row * width, width));
    }
    ++sequence.cached;
    if (position >= known) ++counts_.drafts_kept;
    if (position + 1 == sequence.tokens.size() &&
        sequence.tokens.size() < sequence.target) {
      const size_t width = config_.hidden_size;
      sequence.tokens.push_back(
          hooks.sample(work.sequence, static_cast<int>(position),
                       model_.Logits(absl::MakeConstSpan(hidden).subspan(
                           row * width, width))));
      ++counts_.sampled;
    }
    ++row;
  }
  tables_->Commit(
      absl::MakeConstSpan(sequence.tokens).subspan(0, sequence.cached),
      sequence.pages);
}

}  // namespace kvforge::example

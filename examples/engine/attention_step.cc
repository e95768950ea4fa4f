#include "examples/engine/attention_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "examples/engine/page_allocator.h"
#include "kernels/extend.h"
#include "runtime/base/status_macros.h"

namespace kvforge::example {
namespace {

constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode};

template <typename T>
absl::Status Upload(const std::vector<T>& values, TargetBuffer& to) {
  return to.CopyFromHost(values.data(), values.size() * sizeof(T));
}

// `values` and behind them as many of `padding` as make `count`.
template <typename T>
std::vector<T> Padded(std::vector<T> values, size_t count, T padding) {
  values.resize(count, padding);
  return values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionStep>> AttentionStep::Create(
    Engine& engine, const ModelConfig& config, const StepLimits& limits) {
  std::unique_ptr<AttentionStep> step(
      new AttentionStep(engine, config, limits));
  ASSIGN_OR_RETURN(step->kernels_, PrepareLayers(engine, config, limits));
  RETURN_IF_ERROR(step->AllocateInputs());
  if (engine.target() == TargetKind::kCuda) {
    ASSIGN_OR_RETURN(step->stream_, Stream::Create(engine.device()));
  }
  return step;
}

int AttentionStep::rows(Phase phase) const {
  return phase == Phase::kPrefill ? limits_.prefill_tokens
                                  : limits_.sequences * limits_.decode_tokens;
}

int AttentionStep::num_graphs() const {
  return engine_.target() == TargetKind::kCuda
             ? static_cast<int>(launches_.size() * std::size(kPhases))
             : 0;
}

absl::Status AttentionStep::AllocateInputs() {
  pages_ = (config_.max_tokens + limits_.page_size - 1) / limits_.page_size;
  int q_width = 0, k_width = 0, v_width = 0, out_width = 0, kv_heads = 0;
  for (int layer = 0; layer < config_.num_layers(); ++layer) {
    const LayerGeometry& geometry = config_.geometry(layer);
    kv_heads = std::max(kv_heads, geometry.kv_heads);
    q_width = std::max(q_width, geometry.q_heads * geometry.head_dim);
    k_width = std::max(k_width, geometry.kv_heads * geometry.head_dim);
    v_width = std::max(v_width, geometry.kv_heads * geometry.v_head_dim);
    out_width = std::max(out_width, geometry.q_heads * geometry.v_head_dim);
  }
  if (config_.block_tokens > 0) {
    selected_per_head_ =
        (config_.max_tokens + config_.block_tokens - 1) / config_.block_tokens;
  }
  const size_t most_rows =
      std::max(rows(Phase::kPrefill), rows(Phase::kDecode));
  const size_t sequences = limits_.sequences;
  for (auto [buffer, count] :
       {std::pair{&q_, most_rows * q_width},
        {&k_, most_rows * k_width},
        {&v_, most_rows * v_width},
        {&out_, most_rows * out_width},
        {&q_indptr_, sequences + 1},
        {&kv_lens_, sequences},
        {&selected_, sequences * kv_heads * selected_per_head_}}) {
    constexpr size_t kElementBytes = 4;  // of f32 and of i32
    ASSIGN_OR_RETURN(*buffer,
                     TargetBuffer::Allocate(engine_, count * kElementBytes));
    RETURN_IF_ERROR(buffer->Fill(0));
  }
  return absl::OkStatus();
}

absl::Status AttentionStep::AllocatePoolInputs(int num_pools) {
  const size_t most_rows =
      std::max(rows(Phase::kPrefill), rows(Phase::kDecode));
  pool_inputs_.clear();
  for (int pool = 0; pool < num_pools; ++pool) {
    PoolInput& input = pool_inputs_.emplace_back();
    ASSIGN_OR_RETURN(input.page_table,
                     TargetBuffer::Allocate(
                         engine_, sizeof(int) * limits_.sequences * pages_));
    ASSIGN_OR_RETURN(input.slots, TargetBuffer::Allocate(
                                      engine_, sizeof(long long) * most_rows));
  }
  return absl::OkStatus();
}

absl::StatusOr<AttentionStep::Launch> AttentionStep::MakeLaunch(
    int layer, int pool, const CachePool& cache) const {
  const LayerGeometry& geometry = config_.geometry(layer);
  const int64_t k_row = int64_t{geometry.head_dim} * sizeof(float);
  const int64_t v_row = int64_t{geometry.v_head_dim} * sizeof(float);
  Launch launch;
  launch.pool = pool;
  StoreArgs& store = launch.store;
  store.k_src = {k_.as<const unsigned char>(), geometry.kv_heads * k_row,
                 k_row};
  store.v_src = {v_.as<const unsigned char>(), geometry.kv_heads * v_row,
                 v_row};
  ASSIGN_OR_RETURN(store.k, cache.View(layer, CacheSide::kKey));
  ASSIGN_OR_RETURN(store.v, cache.View(layer, CacheSide::kValue));
  store.slots = pool_inputs_[pool].slots.as<const long long>();
  store.num_slots = cache.num_slots();
  store.num_kv_heads = geometry.kv_heads;

  AttentionArgs& attention = launch.attention;
  attention.q = q_.as<const unsigned char>();
  attention.q_token_stride = geometry.q_heads * k_row;
  attention.q_head_stride = k_row;
  attention.out = out_.as<unsigned char>();
  attention.out_token_stride = geometry.q_heads * v_row;
  attention.out_head_stride = v_row;
  attention.q_indptr = q_indptr_.as<const int>();
  attention.kv_lens = kv_lens_.as<const int>();
  attention.page_table = pool_inputs_[pool].page_table.as<const int>();
  attention.page_table_stride = pages_;
  attention.k = store.k;
  attention.v = store.v;
  if (config_.kinds[layer] == LayerKind::kBlockSparse) {
    attention.selected = selected_.as<const int>();
    attention.selected_per_head = selected_per_head_;
  }
  attention.sm_scale = 1 / std::sqrt(static_cast<float>(geometry.head_dim));
  attention.batch = limits_.sequences;
  attention.num_kv_heads = geometry.kv_heads;
  return launch;
}

absl::Status AttentionStep::Bind(absl::Span<const PoolPlan> plans,
                                 absl::Span<const CachePool> pools) {
  RETURN_IF_ERROR(AllocatePoolInputs(static_cast<int>(pools.size())));
  launches_.clear();
  launches_.resize(config_.num_layers());
  for (size_t pool = 0; pool < pools.size(); ++pool) {
    for (const int layer : plans[pool].layers) {
      ASSIGN_OR_RETURN(launches_[layer],
                       MakeLaunch(layer, static_cast<int>(pool), pools[pool]));
    }
  }
  if (engine_.target() == TargetKind::kHost) return absl::OkStatus();
  for (size_t layer = 0; layer < launches_.size(); ++layer) {
    for (const Phase phase : kPhases) {
      RETURN_IF_ERROR(stream_.BeginCapture());
      RETURN_IF_ERROR(Queue(static_cast<int>(layer), phase, stream_.get()));
      ASSIGN_OR_RETURN(launches_[layer].graphs[static_cast<int>(phase)],
                       stream_.EndCapture());
    }
  }
  return absl::OkStatus();
}

absl::Status AttentionStep::Queue(int layer, Phase phase, void* stream) const {
  const LayerKernels& kernels = kernels_[layer];
  const int num_q_heads = config_.geometry(layer).q_heads;
  StoreArgs store = launches_[layer].store;
  store.num_tokens = rows(phase);
  RETURN_IF_ERROR(RunStore(*kernels.store, store, stream));
  AttentionArgs attention = launches_[layer].attention;
  attention.total_q = rows(phase);
  if (phase == Phase::kPrefill) {
    return RunExtend(*kernels.extend, {attention, num_q_heads}, stream);
  }
  return RunDecode(
      *kernels.decode,
      {attention, num_q_heads, kernels.grid, kernels.workspace.data(),
       static_cast<int64_t>(kernels.workspace.bytes())},
      stream);
}

absl::Status AttentionStep::Begin(const StepInput& input) {
  phase_ = input.phase;
  const size_t sequences = limits_.sequences;
  RETURN_IF_ERROR(Upload(
      Padded(input.q_indptr, sequences + 1, input.q_indptr.back()), q_indptr_));
  RETURN_IF_ERROR(Upload(Padded(input.kv_lens, sequences, 0), kv_lens_));
  RETURN_IF_ERROR(Upload(input.selected, selected_));
  for (size_t pool = 0; pool < pool_inputs_.size(); ++pool) {
    const StepInput::Pool& from = input.pools[pool];
    std::vector<int> table;
    for (const std::vector<int>& pages : from.page_tables) {
      const std::vector<int> row = Padded(pages, pages_, kNoPage);
      table.insert(table.end(), row.begin(), row.end());
    }
    RETURN_IF_ERROR(Upload(table, pool_inputs_[pool].page_table));
    RETURN_IF_ERROR(Upload(Padded(from.slots, rows(phase_), -1LL),
                           pool_inputs_[pool].slots));
  }
  return absl::OkStatus();
}

absl::StatusOr<Floats> AttentionStep::Run(int layer, const Projections& rows) {
  const LayerGeometry& geometry = config_.geometry(layer);
  RETURN_IF_ERROR(Upload(rows.q, q_));
  RETURN_IF_ERROR(Upload(rows.k, k_));
  RETURN_IF_ERROR(Upload(rows.v, v_));
  if (engine_.target() == TargetKind::kCuda) {
    // Small copies may still be under way in the null stream, for which
    // stream_ does not wait.
    RETURN_IF_ERROR(SynchronizeTarget(engine_, nullptr));
    RETURN_IF_ERROR(launches_[layer].graphs[static_cast<int>(phase_)].Launch(
        stream_.get()));
    RETURN_IF_ERROR(stream_.Synchronize());
  } else {
    RETURN_IF_ERROR(Queue(layer, phase_, /*stream=*/nullptr));
  }
  Floats out(rows.q.size() / geometry.head_dim * geometry.v_head_dim);
  RETURN_IF_ERROR(out_.CopyToHost(out.data(), out.size() * sizeof(float)));
  return out;
}

}  // namespace kvforge::example

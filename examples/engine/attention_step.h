// A step's attention on the engine's target: what the kernels read from memory
// there, and the launches of each layer.
//
// Launches have the sizes of the largest step; what a step has fewer of is
// padding that the kernels skip: slots of -1, sequences without query tokens.
// Lengths, page tables, slots and selections are read from memory, so that on a
// GPU each layer's launches are captured once and replayed every step.
#ifndef KVFORGE_EXAMPLES_ENGINE_ATTENTION_STEP_H_
#define KVFORGE_EXAMPLES_ENGINE_ATTENTION_STEP_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/engine/cache_pool.h"
#include "examples/engine/layer_kernels.h"
#include "examples/engine/transformer.h"
#include "kernels/store.h"
#include "runtime/cuda/stream.h"

namespace kvforge::example {

enum class Phase { kPrefill, kDecode };

// Rows are those of all sequences of the step, one behind the other.
struct StepInput {
  Phase phase = Phase::kDecode;
  std::vector<int> q_indptr = {0};  // [sequences + 1]
  std::vector<int> kv_lens;         // [sequences], the step's tokens included
  struct Pool {
    std::vector<std::vector<int>> page_tables;  // [sequences, pages]
    std::vector<long long> slots;               // [rows]
  };
  std::vector<Pool> pools;
  std::vector<int> selected;  // [sequences, kv heads, selected_per_head]
};

class AttentionStep {
 public:
  // Compiles what no cache folder has.
  static absl::StatusOr<std::unique_ptr<AttentionStep>> Create(
      Engine& engine, const ModelConfig& config, const StepLimits& limits);

  // Launches work on these pools from now on; on a GPU they are captured.
  absl::Status Bind(absl::Span<const PoolPlan> plans,
                    absl::Span<const CachePool> pools);

  // Rows of the largest step.
  int rows(Phase phase) const;
  // Blocks in StepInput::selected for each kv head of a sequence.
  int selected_per_head() const { return selected_per_head_; }
  int num_graphs() const;

  absl::Status Begin(const StepInput& input);
  // Stores the step's K and V and attends: [rows, q_heads, v_head_dim]. Done on
  // return.
  absl::StatusOr<Floats> Run(int layer, const Projections& rows);

 private:
  // A layer's launches but for their number of rows.
  struct Launch {
    int pool = 0;
    StoreArgs store = {};
    AttentionArgs attention = {};
    Graph graphs[2];  // by phase; on a GPU
  };

  AttentionStep(Engine& engine, const ModelConfig& config,
                const StepLimits& limits)
      : engine_(engine), config_(config), limits_(limits) {}
  absl::Status AllocateInputs();
  absl::Status AllocatePoolInputs(int num_pools);
  absl::StatusOr<Launch> MakeLaunch(int layer, int pool,
                                    const CachePool& cache) const;
  absl::Status Queue(int layer, Phase phase, void* stream) const;

  Engine& engine_;
  const ModelConfig& config_;
  const StepLimits limits_;
  int pages_ = 0;  // of the longest sequence
  int selected_per_head_ = 0;
  std::vector<LayerKernels> kernels_;  // of each layer
  std::vector<Launch> launches_;       // of each layer
  Stream stream_;                      // on a GPU

  TargetBuffer q_, k_, v_, out_;  // f32 rows
  TargetBuffer q_indptr_, kv_lens_, selected_;
  struct PoolInput {
    TargetBuffer page_table, slots;
  };
  std::vector<PoolInput> pool_inputs_;
  Phase phase_ = Phase::kDecode;  // of the step begun
};

}  // namespace kvforge::example

#endif  // KVFORGE_EXAMPLES_ENGINE_ATTENTION_STEP_H_

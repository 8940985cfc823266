// The needs of a training step on each rank, before anything runs: memory by category, and the bytes that it sends.
//
// The forward and backward of the run's virtual shards are taken with fake tensors (ops/engine/fake.h), so that
// activations, cotangents and waiting gradients are those of the program itself; what ranks divide is computed from
// their layout. docs/memory.md compares plans with measurements.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/core/shape.h"
#include "tutti/runtime/allocator.h"
#include "tutti/train/config/config.h"
#include "tutti/train/config/data_degrees.h"

namespace tutti::train {

// The highest memory of a rank in a step, in bytes, by MemoryCategory.
struct RankMemory {
  std::array<int64_t, kNumMemoryCategories> by_category{};
  int64_t peak() const;
};

// What ranks store of a parameter.
struct PlannedTensor {
  std::string name;
  Extents sizes;  // of the whole
  // In f32, of the ranks in StepPlan::of_ranks; of ranks that divide products, as the first of them, whose part is the
  // largest.
  std::vector<int64_t> stored_bytes = {};
  int64_t most() const;
};

struct StepPlan {
  int64_t ranks = 1;
  DataDegrees degrees;
  bool is_shared = true;               // whether the ranks read one copy of the parameters, in the memory of their host
  std::vector<RankMemory> of_ranks;    // the first kPlannedRanks, of which the others are repetitions
  std::vector<PlannedTensor> tensors;  // the parameters, in their order in the model
  double gradient_bytes = 0;           // sent by the rank that sends the most, in a step
  double parameter_bytes = 0;
  double activation_bytes = 0;  // and their cotangents, between ranks that divide the model or its experts

  double sent_bytes() const { return gradient_bytes + parameter_bytes + activation_bytes; }
  // The memory that `count` ranks on one host, the first ones, take.
  int64_t host_bytes(int64_t count) const;
  // The rank with the highest peak.
  const RankMemory& largest() const;
};
inline constexpr int64_t kPlannedRanks = 64;

// Plans of one configuration for several layouts. Used by one thread, outside of a FakeScope.
class StepPlanner {
 public:
  explicit StepPlanner(const Config& config);
  ~StepPlanner();

  // `is_shared`: the ranks are on one host, on a transport through its memory (shm, threads). UsageError for a model
  // that does not exist, and for degrees that do not fit the ranks, the virtual shards or, by check_tensor_parallel(),
  // the model, and, with the least that will do, for a training.loss_max_bytes that is too small.
  StepPlan plan(int64_t ranks, bool is_shared);
  StepPlan plan(int64_t ranks, DataDegrees degrees, bool is_shared);

 private:
  struct State;
  StepPlan plan_within_bounds(int64_t ranks, DataDegrees degrees, bool is_shared);
  static int64_t least_loss_bytes(Config config, int64_t least, int64_t ranks, DataDegrees degrees, bool is_shared);
  const Config config_;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<State>> states_;  // by tensor- and expert-parallel degree
};

}  // namespace tutti::train

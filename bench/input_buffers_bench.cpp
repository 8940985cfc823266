#include "bench/input_buffers_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "bench/model_shard.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/parallel/shards.h"
#include "tutti/train/step/shard_step.h"

namespace tutti::bench {
namespace {

constexpr int kWarmUp = 2;
constexpr int64_t kShards = 8, kRowsPerShard = 2, kSequenceLength = 256;

// A step with one number of buffers.
struct Stepper {
  Stepper(ModelShard& model, comm::ProcessGroup& group, int64_t buffers)
      : model(model),
        shards(kShards, &group, model.parameters, parallel::Schedule::once_a_step, parallel::Overlap::backward),
        step(model.model, *shards.sink(), models::ForwardOptions{}, false) {
    shards.set_reduce_scatter_max_input_buffers(buffers);
  }
  // Returns a hash of the gradients.
  uint64_t run() {
    for (size_t s = 0; s < shards.local_shards().size(); ++s)
      shards.add(step.run(model.batch, model.labels, model.scale));
    uint64_t hash = 0;
    for (const Tensor& gradient : shards.finish().gradients)
      hash = gradient.defined() ? hash64(gradient.raw_data(), static_cast<size_t>(gradient.nbytes()), hash) : hash;
    return hash;
  }
  ModelShard& model;
  parallel::Shards shards;
  train::ShardStep step;
  std::vector<double> step_us, waited_us, waited_at_end_us;
};

double median(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

}  // namespace

std::vector<InputBuffersResult> run_input_buffers_case(comm::ProcessGroup& group, std::span<const int64_t> buffers,
                                                       int repeats) {
  using Clock = std::chrono::steady_clock;
  using Microseconds = std::chrono::duration<double, std::micro>;
  TUTTI_CHECK(kShards % group.size() == 0 && kShards >= 2 * group.size(),
              "bench comm --input-buffers: {} ranks; each needs two of the {} virtual shards of the quickstart or "
              "more: give 1, 2 or 4",
              group.size(), kShards);
  ModelShard model("quickstart", kRowsPerShard, kSequenceLength);
  std::vector<std::unique_ptr<Stepper>> steppers;
  for (const int64_t k : buffers) steppers.push_back(std::make_unique<Stepper>(model, group, k));
  std::optional<uint64_t> hash;
  for (int i = 0; i < kWarmUp + repeats; ++i) {
    for (const auto& stepper : steppers) {
      group.barrier();
      const auto begin = Clock::now();
      const uint64_t own = stepper->run();
      const auto end = Clock::now();
      TUTTI_ASSERT(!hash || hash == own, "the gradients of {} buffers have other bits", buffers[0]);
      hash = own;
      if (i < kWarmUp) continue;
      const parallel::InputBufferUse& use = stepper->shards.early_buckets().use;
      stepper->step_us.push_back(Microseconds(end - begin).count());
      stepper->waited_us.push_back(Microseconds(use.waited).count());
      stepper->waited_at_end_us.push_back(Microseconds(use.waited_at_end).count());
    }
  }
  std::vector<InputBuffersResult> results;
  for (size_t k = 0; k < steppers.size(); ++k) {
    const Stepper& s = *steppers[k];
    const parallel::EarlyBuckets seen = s.shards.early_buckets();
    results.push_back({.buffers = buffers[k],
                       .ranks = group.size(),
                       .transport = group.backend(DeviceKind::cpu).name(),
                       .buckets = seen.all,
                       .early = seen.early,
                       .waits = seen.use.waits,
                       .step_us = median(s.step_us),
                       .waited_us = median(s.waited_us),
                       .waited_at_end_us = median(s.waited_at_end_us)});
  }
  return results;
}

}  // namespace tutti::bench

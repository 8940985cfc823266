#include "bench/overlap_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "bench/model_shard.h"
#include "tutti/comm/progress.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"
#include "tutti/parallel/shards.h"
#include "tutti/train/step/shard_step.h"

namespace tutti::bench {
namespace {

enum Mode : size_t { kCompute, kApart, kOverlapped, kModes };
constexpr int kWarmUp = 2;

using Step = std::function<void(Mode)>;

Step buckets_step(comm::ProcessGroup& group) {
  constexpr int kBuckets = 16;
  constexpr int64_t kNumel = (1 << 20) / sizeof(float), kSide = 384;
  std::vector<Tensor> buckets;
  for (int b = 0; b < kBuckets; ++b) buckets.push_back(zeros({kNumel}));
  const Tensor a = full({kSide, kSide}, 0.5);
  return [=, &group](Mode mode) {
    std::vector<comm::Work> works;
    for (const Tensor& bucket : buckets) {
      matmul(matmul(a, a), a);
      if (mode != kCompute) works.push_back(group.all_reduce(bucket, {}, {.async = mode == kOverlapped}));
    }
    for (const comm::Work& work : works) work.wait();
  };
}

Step quickstart_step(comm::ProcessGroup& group) {
  constexpr int64_t kShards = 8, kRowsPerShard = 2, kSequenceLength = 256;
  TUTTI_CHECK(kShards % group.size() == 0,
              "bench comm --overlap: {} ranks do not divide the {} virtual shards of the quickstart; give 1, 2, 4 or 8",
              group.size(), kShards);
  auto shard = std::make_shared<ModelShard>("quickstart", kRowsPerShard, kSequenceLength);
  struct Modes {
    std::shared_ptr<ModelShard> shard;
    std::array<std::unique_ptr<parallel::Shards>, kModes> shards;
    std::array<std::unique_ptr<train::ShardStep>, kModes> steps;
  };
  auto modes = std::make_shared<Modes>();
  modes->shard = shard;
  for (const Mode mode : {kCompute, kApart, kOverlapped}) {
    const int64_t count = mode == kCompute ? kShards / group.size() : kShards;
    modes->shards[mode] = std::make_unique<parallel::Shards>(
        count, mode == kCompute ? nullptr : &group, shard->parameters, parallel::Schedule::once_a_step,
        mode == kOverlapped ? parallel::Overlap::backward : parallel::Overlap::none);
    modes->steps[mode] =
        std::make_unique<train::ShardStep>(shard->model, *modes->shards[mode]->sink(), models::ForwardOptions{}, false);
  }
  return [modes](Mode mode) {
    parallel::Shards& shards = *modes->shards[mode];
    for (size_t s = 0; s < shards.local_shards().size(); ++s)
      shards.add(modes->steps[mode]->run(modes->shard->batch, modes->shard->labels, modes->shard->scale));
    shards.finish();
  };
}

double median(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

}  // namespace

const std::vector<std::string>& overlap_steps() {
  static const std::vector<std::string> names{"buckets", "quickstart"};
  return names;
}

OverlapResult run_overlap_case(comm::ProcessGroup& group, const std::string& name, bool progress_thread, int repeats) {
  using Clock = std::chrono::steady_clock;
  const Step step = name == "buckets" ? buckets_step(group) : quickstart_step(group);
  std::array<std::vector<double>, kModes> us;
  for (int i = 0; i < kWarmUp + repeats; ++i) {
    for (const Mode mode : {kCompute, kApart, kOverlapped}) {
      std::optional<comm::ProgressThread> thread;
      if (progress_thread && mode == kOverlapped) thread.emplace();
      group.barrier();
      const auto begin = Clock::now();
      step(mode);
      group.barrier();
      if (i >= kWarmUp) us[mode].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
  }
  return {.step = name,
          .ranks = group.size(),
          .transport = group.backend(DeviceKind::cpu).name(),
          .progress_thread = progress_thread,
          .compute_us = median(us[kCompute]),
          .apart_us = median(us[kApart]),
          .overlapped_us = median(us[kOverlapped])};
}

}  // namespace tutti::bench

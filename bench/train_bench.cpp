#include "bench/train_bench.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "bench/fma_peak.h"
#include "bench/model_shard.h"
#include "tutti/ops/binary.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/parallel/shards.h"
#include "tutti/train/shard_step.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

Timing timing_of(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  return {us.front(), us[us.size() / 2]};
}

double mean_of(const Tensor& losses) {
  const Tensor dense = to_contiguous(losses);
  const float* first = dense.data<float>();
  return std::accumulate(first, first + dense.numel(), 0.0) / static_cast<double>(dense.numel());
}

// A model, its optimizer, and how long the parts of its steps took.
class Trainer {
 public:
  Trainer(const TrainProblem& problem, bool compiled)
      : before_(RankContext::current().allocator().statistics().current_bytes), shard_(problem.model, problem.rows, problem.sequence_length), shards_(1, nullptr, shard_.parameters),
        step_(shard_.model, *shards_.sink(), {}, compiled), optimizer_(optim::make_adamw(shard_.model.named_parameters())) {
    if (compiled) optimizer_->compile();
  }

  void run_step(bool counts) {
    Allocator& allocator = RankContext::current().allocator();
    allocator.reset_peak();
    const auto begin = Clock::now();
    const Tensor losses = step_.run(shard_.batch, shard_.labels, shard_.scale);
    shards_.add(losses);
    const auto has_grads = Clock::now();
    const parallel::ShardSums sums = shards_.finish();
    const double scale = optim::clip_scale(optim::norm_of(sums.squares), 1.0);
    const auto has_norm = Clock::now();
    optimizer_->step(sums.gradients, 1e-4, scale);
    const auto end = Clock::now();
    loss_.push_back(mean_of(losses));
    if (!counts) return;
    const auto us = [](auto from, auto to) { return std::chrono::duration<double, std::micro>(to - from).count(); };
    step_us_.push_back(us(begin, end));
    shard_us_.push_back(us(begin, has_grads));
    norm_us_.push_back(us(has_grads, has_norm));
    optimizer_us_.push_back(us(has_norm, end));
    peak_ = std::max(peak_, allocator.statistics().peak_bytes);
  }

  TrainRow row(const char* mode, const TrainProblem& problem, double peak_gflops) const {
    TrainRow row{.mode = mode, .step = timing_of(step_us_), .shard = timing_of(shard_us_), .norm = timing_of(norm_us_), .optimizer = timing_of(optimizer_us_)};
    row.tokens_per_s = static_cast<double>(shard_.tokens()) / row.step.median_us * 1e6;
    row.gflops = row.tokens_per_s * models::training_flops_per_token(shard_.model.config(), problem.sequence_length) / 1e9;
    row.peak_gflops = peak_gflops;
    row.first_loss = loss_.front();
    row.last_loss = loss_.back();
    for (const Tensor& p : shard_.parameters) row.parameters += p.numel();
    row.peak_mbytes = static_cast<double>(peak_ - before_) / (1 << 20);
    return row;
  }

  const std::vector<Tensor>& parameters() const { return shard_.parameters; }

 private:
  const int64_t before_;  // bytes in use that are not this trainer's, such as the weights of the one before it
  ModelShard shard_;
  parallel::Shards shards_;
  train::ShardStep step_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<double> step_us_, shard_us_, norm_us_, optimizer_us_, loss_;
  int64_t peak_ = 0;
};

}  // namespace

std::vector<TrainRow> run_train_bench(const TrainProblem& problem) {
  TUTTI_CHECK(problem.steps >= 1, "bench train: {} steps; expected at least 1", problem.steps);
  RankContext::current().set_threads(problem.threads);
  const double peak = fma_peak_gflops() * problem.threads;
  constexpr int kWarmUp = 2;
  std::vector<TrainRow> rows;
  std::vector<std::vector<Tensor>> weights;
  for (const bool compiled : {false, true}) {
    seed_all(1);
    Trainer trainer(problem, compiled);
    for (int step = 0; step < kWarmUp + problem.steps; ++step) trainer.run_step(step >= kWarmUp);
    rows.push_back(trainer.row(compiled ? "compiled" : "eager", problem, peak));
    weights.push_back(trainer.parameters());
  }
  for (size_t i = 0; i < weights[0].size(); ++i) {
    const Tensor &a = weights[0][i], &b = weights[1][i];
    TUTTI_ASSERT(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0, "bench train: parameter {} differs between eager and compiled", i);
  }
  return rows;
}

}  // namespace tutti::bench

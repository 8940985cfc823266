#include "bench/train_bench.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "bench/fma_peak.h"
#include "bench/model_shard.h"
#include "bench/process_memory.h"
#include "tutti/ops/binary.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/step/shard_step.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

double mean_of(const Tensor& losses) {
  const Tensor dense = to_contiguous(losses);
  const float* first = dense.data<float>();
  return std::accumulate(first, first + dense.numel(), 0.0) / static_cast<double>(dense.numel());
}

// A causal query sees half of the keys, and what it does not see is no work.
double flops_per_token(const models::DecoderConfig& c, int64_t sequence_length) {
  double flops = models::training_flops_per_token(c, sequence_length);
  for (const models::LayerConfig& layer : c.layers)
    flops -= 6.0 * static_cast<double>(layer.attention.heads * layer.attention.head_dim) *
             static_cast<double>(sequence_length);
  return flops;
}

// A model, its optimizer, and how long the parts of its steps took.
class Trainer {
 public:
  Trainer(const TrainProblem& problem, bool compiled)
      : before_(RankContext::current().allocator().statistics().current_bytes),
        rss_(process_memory().now_mbytes),
        shard_(problem.model, problem.rows, problem.sequence_length, problem.dtype),
        shards_(1, nullptr, shard_.parameters),
        step_(shard_.model, *shards_.sink(), {}, compiled),
        optimizer_(optim::make_adamw(shard_.model.named_parameters())) {
    if (compiled) optimizer_->compile();
  }

  void run(int warm_up, int steps) {
    for (int step = 0; step < warm_up; ++step) run_step(false);
    restart_memory_peak();
    for (int step = 0; step < steps; ++step) run_step(true);
    peak_rss_ = process_memory().peak_mbytes;
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
    TrainRow row{.mode = mode,
                 .step = timing_of(step_us_),
                 .shard = timing_of(shard_us_),
                 .norm = timing_of(norm_us_),
                 .optimizer = timing_of(optimizer_us_)};
    row.tokens_per_s = static_cast<double>(shard_.tokens()) / row.step.median_us * 1e6;
    row.gflops = row.tokens_per_s * flops_per_token(shard_.model.config(), problem.sequence_length) / 1e9;
    row.peak_gflops = peak_gflops;
    row.first_loss = loss_.front();
    row.last_loss = loss_.back();
    for (const Tensor& p : shard_.parameters) row.parameters += p.numel();
    row.peak_mbytes = static_cast<double>(peak_ - before_) / (1 << 20);
    row.rss_mbytes = rss_;
    row.peak_rss_mbytes = peak_rss_;
    return row;
  }

  std::vector<Tensor> masters() const {
    std::vector<Tensor> masters;
    for (const nn::NamedParameter& p : shard_.model.named_parameters()) masters.push_back(p.parameter.master());
    return masters;
  }

 private:
  const int64_t before_;  // bytes in use that are not this trainer's, such as the weights of the one before it
  const double rss_;
  ModelShard shard_;
  parallel::Shards shards_;
  train::ShardStep step_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<double> step_us_, shard_us_, norm_us_, optimizer_us_, loss_;
  int64_t peak_ = 0;
  double peak_rss_ = 0;
};

}  // namespace

std::vector<TrainRow> run_train_bench(const TrainProblem& problem) {
  TUTTI_CHECK(problem.steps >= 1, "bench train: {} steps; expected at least 1", problem.steps);
  TUTTI_CHECK(problem.dtype == DType::f32 || problem.dtype == DType::bf16,
              "bench train: dtype {}; expected f32 or bf16, the dtypes in which the trainer computes",
              name_of(problem.dtype));
  TUTTI_CHECK(problem.mode == "both" || problem.mode == "eager" || problem.mode == "compiled",
              "bench train: mode '{}'; expected eager, compiled or both", problem.mode);
  RankContext::current().set_threads(problem.threads);
  const double peak = (problem.dtype == DType::bf16 ? bf16_peak_gflops() : fma_peak_gflops()) * problem.threads;
  constexpr int kWarmUp = 2;
  std::vector<TrainRow> rows;
  std::vector<std::vector<Tensor>> weights;
  for (const char* mode : {"eager", "compiled"}) {
    if (problem.mode != "both" && problem.mode != mode) continue;
    seed_all(1);
    Trainer trainer(problem, mode == std::string("compiled"));
    trainer.run(kWarmUp, problem.steps);
    rows.push_back(trainer.row(mode, problem, peak));
    weights.push_back(trainer.masters());
  }
  for (size_t i = 0; weights.size() == 2 && i < weights[0].size(); ++i) {
    const Tensor &a = weights[0][i], &b = weights[1][i];
    TUTTI_ASSERT(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0,
                 "bench train: parameter {} differs between eager and compiled", i);
  }
  return rows;
}

}  // namespace tutti::bench

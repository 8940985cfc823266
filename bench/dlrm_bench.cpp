#include "bench/dlrm_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "tutti/core/philox.h"
#include "tutti/graph/compile.h"
#include "tutti/models/dlrm.h"
#include "tutti/nn/loss.h"
#include "tutti/ops/random.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

models::DlrmConfig config_of(const DlrmProblem& p) {
  models::DlrmConfig config{.dim = p.dim, .bottom = p.bottom, .top = p.top, .tables_apart = true};
  const double least = std::min<double>(10, static_cast<double>(p.rows));
  for (int64_t t = 0; t < p.tables; ++t) {
    const double place = p.tables == 1 ? 1.0 : static_cast<double>(t) / static_cast<double>(p.tables - 1);
    config.table_rows.push_back(
        std::max<int64_t>(static_cast<int64_t>(least * std::pow(static_cast<double>(p.rows) / least, place)), 1));
  }
  return config;
}

// The examples of a shard in a step.
struct Examples {
  Tensor dense, labels, categories;
};
Examples examples_of(const DlrmProblem& p, const models::DlrmConfig& config, int64_t step, int64_t shard) {
  const int64_t n = p.batch / p.shards, first = (step * p.shards + shard) * n;
  const auto tables = static_cast<int64_t>(config.table_rows.size());
  Examples e{Tensor::empty({n, config.dense_features}, DType::f32), Tensor::empty({n}, DType::f32),
             Tensor::empty({n, tables}, DType::i64)};
  const auto uniform_of = [](int64_t i, uint64_t seed) {
    return philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}, philox_key(seed))[0] * 0x1p-32;
  };
  for (int64_t i = 0; i < e.dense.numel(); ++i)
    e.dense.data<float>()[i] = static_cast<float>(uniform_of(first * config.dense_features + i, 1));
  for (int64_t i = 0; i < n; ++i) e.labels.data<float>()[i] = uniform_of(first + i, 2) < 0.25 ? 1.0f : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t t = 0; t < tables; ++t) {
      const int64_t rows = config.table_rows[static_cast<size_t>(t)];
      const double u = uniform_of((first + i) * tables + t, 3);
      const double rank =
          p.skew == 0 ? u * static_cast<double>(rows) : std::pow(static_cast<double>(rows), std::pow(u, p.skew)) - 1;
      const uint64_t row = std::min(static_cast<uint64_t>(rank), static_cast<uint64_t>(rows) - 1);
      // Ranks are spread, as rows that are often used do not lie together.
      e.categories.data<int64_t>()[i * tables + t] =
          static_cast<int64_t>(row * 2654435761u % static_cast<uint64_t>(rows));
    }
  }
  return e;
}

// A model, its tables and optimizer, and how long the parts of its steps took.
class Trainer {
 public:
  Trainer(const DlrmProblem& problem, bool compiled) : problem_(problem), config_(config_of(problem)), model_(config_) {
    const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.01}};
    std::vector<nn::TableConfig> configs = models::tables_of(config_);
    std::vector<parallel::PlannedTable> planned;
    for (const nn::TableConfig& t : configs) planned.push_back(parallel::planned_table(t, options, 1));
    const parallel::EmbeddingPlan plan =
        parallel::plan_embeddings(planned, {.memory_bytes = INT64_MAX, .batch = problem.batch});
    tables_.emplace(std::move(configs), options, plan, problem.shards, nullptr);
    nn::initialize(model_);
    tables_->initialize();
    optimizer_ = optim::make_adamw(model_.named_parameters(), {.lr = 1e-3, .weight_decay = 0});
    shards_.emplace(problem.shards, nullptr, nn::leaves_of(optimizer_->parameters()));
    const auto losses = [this](const Tensor& dense, const Tensor& looked_up, const Tensor& labels) {
      const Tensor logits = model_.forward_looked_up(dense, looked_up);
      return nn::binary_cross_entropy_with_logits(logits, labels, {}, LossReduction::none);
    };
    if (compiled) {
      optimizer_->compile();
      losses_ = compile(losses, {.name = "dlrm"});
    } else {
      losses_ = losses;
    }
  }

  void run_step(int64_t number, bool counts) {
    std::vector<Examples> examples;  // reading is not a part of the step
    for (int64_t s = 0; s < problem_.shards; ++s) examples.push_back(examples_of(problem_, config_, number, s));
    const auto begin = Clock::now();
    std::vector<TableBatch> batches;
    for (const Examples& e : examples) batches.push_back(models::table_batch_of(e.categories));
    const std::vector<Tensor> looked_up = tables_->look_up(batches);
    const auto has_rows = Clock::now();
    for (parallel::Shard& shard : shards_->step(number)) {
      const size_t s = static_cast<size_t>(shard.index());
      shard.backward(losses_(examples[s].dense, looked_up[s], examples[s].labels),
                     1.0 / static_cast<double>(problem_.batch));
    }
    loss_.push_back(shards_->finish_step(*optimizer_).loss / static_cast<double>(problem_.batch));
    const auto has_gradients = Clock::now();
    tables_->step();
    const auto end = Clock::now();
    if (!counts) return;
    const auto us = [](auto from, auto to) { return std::chrono::duration<double, std::micro>(to - from).count(); };
    step_us_.push_back(us(begin, end));
    look_up_us_.push_back(us(begin, has_rows));
    dense_us_.push_back(us(has_rows, has_gradients));
    tables_us_.push_back(us(has_gradients, end));
  }

  DlrmRow row(const char* mode) const {
    DlrmRow row{.mode = mode,
                .step = timing_of(step_us_),
                .look_up = timing_of(look_up_us_),
                .dense = timing_of(dense_us_),
                .tables = timing_of(tables_us_)};
    row.examples_per_s = static_cast<double>(problem_.batch) / row.step.median_us * 1e6;
    row.first_loss = loss_.front();
    row.last_loss = loss_.back();
    row.parameters = models::parameter_count(config_);
    return row;
  }
  const std::vector<double>& losses() const { return loss_; }

 private:
  const DlrmProblem& problem_;
  const models::DlrmConfig config_;
  models::Dlrm model_;
  std::optional<parallel::ShardedTables> tables_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<parallel::Shards> shards_;
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> losses_;
  std::vector<double> step_us_, look_up_us_, dense_us_, tables_us_, loss_;
};

}  // namespace

std::vector<DlrmRow> run_dlrm_bench(const DlrmProblem& problem) {
  TUTTI_CHECK(problem.steps >= 1, "bench dlrm: {} steps; expected at least 1", problem.steps);
  TUTTI_CHECK(problem.shards >= 1 && problem.batch >= problem.shards && problem.batch % problem.shards == 0,
              "bench dlrm: {} examples over {} virtual shards; expected a multiple", problem.batch, problem.shards);
  TUTTI_CHECK(problem.mode == "both" || problem.mode == "eager" || problem.mode == "compiled",
              "bench dlrm: mode '{}'; expected eager, compiled or both", problem.mode);
  RankContext::current().set_threads(problem.threads);
  constexpr int64_t kWarmUp = 2;
  std::vector<DlrmRow> rows;
  std::vector<double> losses;
  for (const char* mode : {"eager", "compiled"}) {
    if (problem.mode != "both" && problem.mode != mode) continue;
    seed_all(1);
    Trainer trainer(problem, mode == std::string("compiled"));
    for (int64_t step = 1; step <= kWarmUp + problem.steps; ++step) trainer.run_step(step, step > kWarmUp);
    rows.push_back(trainer.row(mode));
    TUTTI_ASSERT(losses.empty() || losses == trainer.losses(), "bench dlrm: losses differ between eager and compiled");
    losses = trainer.losses();
  }
  return rows;
}

}  // namespace tutti::bench

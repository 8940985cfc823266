// Lesson 16: a model of clicks (DLRM) with 26 tables, which ranks divide by a plan, trained data-parallel on rows that
// are read from files. Labels are drawn from a known model, so that the best possible AUC is known.
// Last line of output: the AUC is within 0.02 of the best possible one
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/io/click_reader.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/models/dlrm.h"
#include "tutti/nn/click_metrics.h"
#include "tutti/nn/loss.h"
#include "tutti/ops.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/merged_metric.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

constexpr int64_t kShards = 8, kRows = 128;  // rows of a shard
constexpr int64_t kSteps = 400, kTrainRows = kSteps * kShards * kRows, kTestRows = 32 * 1024;

void train(comm::ProcessGroup& group, const std::string& training, const std::string& test,
           const GeneratedClicks& clicks) {
  seed_all(1);
  std::vector<int64_t> table_rows;
  for (const ClickColumns::Category& column : clicks.columns().categories) table_rows.push_back(column.rows);
  const models::DlrmConfig config{
      .table_rows = table_rows, .dim = 8, .bottom = {32}, .top = {64}, .tables_apart = true};
  models::Dlrm model(config);
  nn::initialize(model);
  const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.002, .weight_decay = 0});
  parallel::Shards shards(kShards, &group, nn::leaves_of(optimizer->parameters()));

  // Which rank holds which table, or which rows of it.
  const std::vector<nn::TableConfig> configs = models::tables_of(config);
  const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.04}};
  std::vector<parallel::PlannedTable> planned;
  for (const nn::TableConfig& table : configs) planned.push_back(parallel::planned_table(table, options, 1));
  const parallel::EmbeddingPlan plan =
      parallel::plan_embeddings(planned, {.ranks = group.size(), .memory_bytes = 1 << 20, .batch = kShards * kRows});
  if (group.rank() == 0) std::printf("%s", plan.to_string(planned).c_str());
  parallel::ShardedTables tables(configs, options, plan, kShards, &group);
  tables.initialize();

  ClickReader reader({training}, clicks.columns());
  for (int64_t step = 1; step <= kSteps; ++step) {
    std::vector<ClickRows> rows;
    std::vector<TableBatch> batches;
    int64_t next = 0;  // the shard whose rows come next
    for (const int64_t shard : tables.shards()) {
      reader.skip((shard - next) * kRows);  // rows of shards that other ranks run
      rows.push_back(reader.read(kRows));
      batches.push_back(models::table_batch_of(rows.back().categories));
      next = shard + 1;
    }
    reader.skip((kShards - next) * kRows);
    const std::vector<Tensor> looked_up = tables.look_up(batches);
    size_t i = 0;
    for (parallel::Shard& shard : shards.step(step)) {
      const Tensor logits = model.forward_looked_up(rows[i].dense, looked_up[i]);
      const Tensor losses = nn::binary_cross_entropy_with_logits(logits, rows[i].labels, {}, LossReduction::none);
      shard.backward(losses, 1.0 / (kShards * kRows));
      ++i;
    }
    const double loss = shards.finish_step(*optimizer).loss / (kShards * kRows);
    tables.step();
    if (step % 50 == 0 && group.rank() == 0) std::printf("step %3d  loss %.4f\n", static_cast<int>(step), loss);
  }

  const nn::EvalScope evaluating(model), evaluating_tables(tables);
  const NoGradScope no_grad;
  nn::RocAuc auc, best;
  nn::Calibration calibration;
  ClickReader held_out({test}, clicks.columns());
  for (int64_t first = 0; first < kTestRows; first += 1024 * group.size()) {
    held_out.skip(1024 * group.rank());
    const ClickRows rows = held_out.read(1024);
    held_out.skip(1024 * (group.size() - 1 - group.rank()));
    const Tensor looked_up = tables.look_up({{models::table_batch_of(rows.categories)}})[0];
    const Tensor logits = model.forward_looked_up(rows.dense, looked_up);
    auc.add(logits, rows.labels);
    calibration.add(sigmoid(logits), rows.labels);
    best.add(clicks.logits(kTrainRows + first + 1024 * group.rank(), 1024), rows.labels);
  }
  const double reached = parallel::merged(auc, &group).value(), possible = parallel::merged(best, &group).value();
  const double predicted = parallel::merged(calibration, &group).value();
  if (group.rank() != 0) return;
  std::printf("%lld rows: AUC %.4f, best possible %.4f, calibration %.3f\n", static_cast<long long>(kTestRows), reached,
              possible, predicted);
  std::printf("the AUC is %s 0.02 of the best possible one\n", reached > possible - 0.02 ? "within" : "not within");
}

int main() {
  std::vector<int64_t> table_rows;
  for (int64_t t = 0; t < 26; ++t) table_rows.push_back(3 + t * t * 2);  // 3 to 1,253
  const GeneratedClicks clicks(criteo_columns(table_rows));
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tutti-clicks-" + std::to_string(getpid()));
  clicks.write_npy(folder / "training", 0, kTrainRows);
  clicks.write_csv(folder / "test.csv", kTrainRows, kTestRows);
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) { train(group, folder / "training", folder / "test.csv", clicks); });
  std::filesystem::remove_all(folder);
}

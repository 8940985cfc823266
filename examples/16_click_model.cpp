// Lesson 16: a model of clicks (DLRM) with 26 sparse tables, trained data-parallel on rows that are read from files.
// Labels are drawn from a known model, so that the best possible AUC is known.
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
#include "tutti/parallel/shards.h"
#include "tutti/parallel/table_gradients.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

constexpr int64_t kShards = 8, kRows = 128;  // rows of a shard
constexpr int64_t kSteps = 400, kTrainRows = kSteps * kShards * kRows, kTestRows = 32 * 1024;

void train(comm::ProcessGroup& group, const std::string& training, const std::string& test,
           const GeneratedClicks& clicks) {
  seed_all(1);
  std::vector<int64_t> table_rows;
  for (const ClickColumns::Category& column : clicks.columns().categories) table_rows.push_back(column.rows);
  models::Dlrm model({.table_rows = table_rows, .dim = 8, .bottom = {32}, .top = {64}});
  nn::initialize(model);
  const auto optimizer = optim::make_adamw(model.other_parameters(), {.lr = 0.002, .weight_decay = 0});
  parallel::Shards shards(kShards, &group, nn::leaves_of(optimizer->parameters()));
  parallel::TableGradients tables(kShards, &group, table_rows);

  ClickReader reader({training}, clicks.columns());
  for (int64_t step = 1; step <= kSteps; ++step) {
    int64_t next = 0;  // the shard whose rows come next
    for (parallel::Shard& shard : shards.step(step)) {
      reader.skip((shard.index() - next) * kRows);  // rows of shards that other ranks run
      const ClickRows rows = reader.read(kRows);
      next = shard.index() + 1;
      const Tensor logits = nn::call(model, rows.dense, rows.categories);
      const Tensor losses = nn::binary_cross_entropy_with_logits(logits, rows.labels, {}, LossReduction::none);
      shard.backward(losses, 1.0 / (kShards * kRows));
      tables.add(shard.index(), model.tables().take_row_gradients());
    }
    reader.skip((kShards - next) * kRows);
    const double loss = shards.finish_step(*optimizer).loss / (kShards * kRows);
    model.tables().step(tables.finish(), {.lr = 0.04, .eps = 1e-8});
    if (step % 50 == 0 && group.rank() == 0) std::printf("step %3d  loss %.4f\n", static_cast<int>(step), loss);
  }

  const nn::EvalScope evaluating(model);
  const NoGradScope no_grad;
  nn::RocAuc auc, best;
  nn::Calibration calibration;
  ClickReader held_out({test}, clicks.columns());
  for (int64_t first = 0; first < kTestRows; first += 1024) {
    if (first / 1024 % group.size() != group.rank()) {
      held_out.skip(1024);
      continue;
    }
    const ClickRows rows = held_out.read(1024);
    const Tensor logits = nn::call(model, rows.dense, rows.categories);
    auc.add(logits, rows.labels);
    calibration.add(sigmoid(logits), rows.labels);
    best.add(clicks.logits(kTrainRows + first, 1024), rows.labels);
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

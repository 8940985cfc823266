// A click model trained on any ranks, left and resumed: the losses and weights of one rank that was not left.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>

#include "tests/train/support/temp_folder.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/io/click_reader.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/models/dlrm.h"
#include "tutti/nn/click_metrics.h"
#include "tutti/nn/loss.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/merged_metric.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/checkpoint/digest.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kShards = 8, kRows = 5;
const ClickColumns kColumns = criteo_columns({4, 60, 2000});

// A program of steps that can be left after any of them.
struct Program {
  Program(comm::ProcessGroup& group, const std::string& path) : reader({path}, kColumns), shards_group(&group) {
    seed_all(9);
    const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.05}};
    const std::vector<nn::TableConfig> configs = models::tables_of(model.config());
    std::vector<parallel::PlannedTable> planned;
    for (const nn::TableConfig& t : configs) planned.push_back(parallel::planned_table(t, options, 1));
    const parallel::EmbeddingPlan plan =
        parallel::plan_embeddings(planned, {.ranks = group.size(), .memory_bytes = 1 << 20, .batch = kShards * kRows});
    tables.emplace(configs, options, plan, kShards, &group);
    nn::initialize(model);
    tables->initialize();
    optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.01});
    shards.emplace(kShards, &group, nn::leaves_of(optimizer->parameters()));
  }
  double step(int64_t number) {
    int64_t next = 0;
    std::vector<ClickRows> rows;
    std::vector<TableBatch> batches;
    for (const int64_t s : tables->shards()) {
      reader.skip((s - next) * kRows);
      rows.push_back(reader.read(kRows));
      next = s + 1;
      batches.push_back(models::table_batch_of(rows.back().categories));
    }
    reader.skip((kShards - next) * kRows);
    const std::vector<Tensor> looked_up = tables->look_up(batches);
    size_t i = 0;
    for (parallel::Shard& shard : shards->step(number)) {
      const Tensor logits = model.forward_looked_up(rows[i].dense, looked_up[i]);
      auc.add(logits, rows[i].labels);
      shard.backward(nn::binary_cross_entropy_with_logits(logits, rows[i].labels, {}, LossReduction::none),
                     1.0 / (kShards * kRows));
      ++i;
    }
    const double loss = shards->finish_step(*optimizer).loss;
    tables->step();
    return loss;
  }
  void save(const fs::path& folder, int64_t number) const {
    save_checkpoint(folder, model, *optimizer, {.step = number, .optimizer_steps = optimizer->steps_taken(), .seed = 9},
                    1, shards_group, &*tables);
  }

  models::Dlrm model{{.table_rows = {4, 60, 2000}, .dim = 6, .bottom = {9}, .top = {12}, .tables_apart = true}};
  ClickReader reader;
  comm::ProcessGroup* shards_group;
  std::optional<parallel::ShardedTables> tables;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<parallel::Shards> shards;
  nn::RocAuc auc;
};

struct Results {
  std::vector<double> losses;
  std::map<std::string, std::string> digests;  // of all values
  double auc = 0;
  bool operator==(const Results&) const = default;
};

void finish(Results& results, Program& program, comm::ProcessGroup& group) {
  for (const nn::StateDict& state : {program.model.state_dict(), program.tables->gathered()})
    for (const auto& [name, values] : state) results.digests[name] = tensor_digest(values);
  results.auc = parallel::merged(program.auc, &group).value();
}

Results results_of(int ranks, const std::string& path) {
  Results results;
  std::mutex mutex;
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    Program program(group, path);
    Results own;
    for (int64_t s = 1; s <= 6; ++s) own.losses.push_back(program.step(s));
    finish(own, program, group);
    const std::lock_guard lock(mutex);
    if (results.losses.empty()) results = own;
    EXPECT_EQ(own, results) << "rank " << group.rank() << " of " << ranks;
  });
  return results;
}

TEST(ClickTraining, HasTheBitsOfOneRankOnAnyRanksAndFiles) {
  const TempFolder folder;
  const GeneratedClicks clicks(kColumns);
  const std::string text = (folder.path() / "a.csv").string(), arrays = (folder.path() / "a").string();
  clicks.write_csv(text, 0, 101);  // so that the file is read again in the middle of a shard
  clicks.write_npy(arrays, 0, 101);
  const Results expected = results_of(1, text);
  EXPECT_GT(expected.losses.front(), 0);
  EXPECT_EQ(expected.digests.count("state.tables.2.weight.h"), 1u);
  for (const int ranks : {1, 2, 3, 4, 8}) EXPECT_EQ(results_of(ranks, arrays), expected) << ranks << " ranks";
}

TEST(ClickTraining, ResumesOnOtherRanksWithTheBitsOfARunThatWasNotLeft) {
  const TempFolder folder;
  const std::string path = (folder.path() / "a.csv").string();
  GeneratedClicks(kColumns).write_csv(path, 0, 101);
  const Results expected = results_of(1, path);
  std::vector<int64_t> position;
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    Program program(group, path);
    for (int64_t s = 1; s <= 4; ++s) program.step(s);
    program.save(folder.path() / "checkpoint", 4);
    if (group.rank() == 0) position = program.reader.position().numbers();
  });
  for (const int ranks : {1, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      Program program(group, path);
      const TrainState state = load_checkpoint(folder.path() / "checkpoint" / "step-4", program.model,
                                               *program.optimizer, &group, &*program.tables);
      program.reader.seek(ClickPosition::of(position));
      Results results{.losses = {expected.losses.begin(), expected.losses.begin() + 4}};
      for (int64_t s = state.step + 1; s <= 6; ++s) results.losses.push_back(program.step(s));
      finish(results, program, group);
      EXPECT_EQ(results.losses, expected.losses);
      EXPECT_EQ(results.digests, expected.digests);
    });
  }
}

}  // namespace
}  // namespace tutti::train

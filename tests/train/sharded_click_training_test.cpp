// A click model whose tables ranks divide by a plan, left and resumed under another: the losses, weights and bytes of
// checkpoints of one rank that was not left.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>

#include "tests/support/message_of.h"
#include "tests/train/support/temp_folder.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/models/dlrm.h"
#include "tutti/nn/loss.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/checkpoint/checkpoint.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;
using enum parallel::TablePlacement;
using Placements = std::vector<parallel::TablePlacement>;

constexpr int64_t kShards = 8, kRows = 5;
const std::vector<int64_t> kTableRows = {4, 60, 2000};
const models::DlrmConfig kModel{.table_rows = kTableRows, .dim = 40, .bottom = {9}, .top = {12}, .tables_apart = true};
const GeneratedClicks kClicks(criteo_columns(kTableRows));

struct Program {
  Program(comm::ProcessGroup& given, const Placements& placements) : group(&given) {
    seed_all(9);
    const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.05}};
    const std::vector<nn::TableConfig> configs = models::tables_of(kModel);
    std::vector<parallel::PlannedTable> planned;
    for (const nn::TableConfig& t : configs) planned.push_back(parallel::planned_table(t, options, 1));
    const parallel::EmbeddingPlan plan = parallel::plan_embeddings(
        planned, {.ranks = group->size(), .memory_bytes = 1 << 20, .batch = kShards * kRows}, placements);
    tables.emplace(configs, options, plan, kShards, group);
    nn::initialize(model);
    tables->initialize();
    optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.01});
    shards.emplace(kShards, group, nn::leaves_of(optimizer->parameters()));
  }
  double step(int64_t number) {
    std::vector<ClickRows> rows;
    std::vector<TableBatch> batches;
    for (const int64_t s : tables->shards()) {
      rows.push_back(kClicks.rows((number * kShards + s) * kRows, kRows));
      batches.push_back(models::table_batch_of(rows.back().categories));
    }
    const std::vector<Tensor> looked_up = tables->look_up(batches);
    size_t b = 0;
    for (parallel::Shard& shard : shards->step(number)) {
      const Tensor logits = model.forward_looked_up(rows[b].dense, looked_up[b]);
      shard.backward(nn::binary_cross_entropy_with_logits(logits, rows[b].labels, {}, LossReduction::none),
                     1.0 / (kShards * kRows));
      ++b;
    }
    const double loss = shards->finish_step(*optimizer).loss;
    tables->step();
    return loss;
  }
  void save(const fs::path& folder, int64_t number) const {
    save_checkpoint(folder, model, *optimizer, {.step = number, .optimizer_steps = optimizer->steps_taken(), .seed = 9},
                    9, group, &*tables);
  }

  models::Dlrm model{kModel};
  comm::ProcessGroup* group;
  std::optional<parallel::ShardedTables> tables;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<parallel::Shards> shards;
};

std::string contents_of(const fs::path& folder) {
  std::string all;
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    std::ifstream file(folder / name, std::ios::binary);
    all.append(std::istreambuf_iterator<char>(file), {});
  }
  return all;
}

TEST(ShardedClickTraining, AnyPlanHasTheBitsOfOneRankAndGoesOnUnderAnyOther) {
  const TempFolder folder;
  std::vector<double> losses;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    Program program(group, {});
    for (int64_t s = 1; s <= 4; ++s) {
      losses.push_back(program.step(s));
      program.save(folder / "one", s);
    }
  });
  const std::string after_2 = contents_of(folder.path() / "one" / "step-2"),
                    after_4 = contents_of(folder.path() / "one" / "step-4");
  ASSERT_GT(after_4.size(), 40u * 2000u * 4u);
  const std::vector<std::pair<int, Placements>> plans = {{2, {data_parallel}}, {2, {table_wise}},  {4, {row_wise}},
                                                         {3, {row_wise}},      {2, {column_wise}}, {4, {}}};
  for (size_t p = 0; p < plans.size(); ++p) {
    const fs::path mine = folder.path() / fmt::format("plan-{}", p);
    comm::run_ranks(plans[p].first, [&](comm::ProcessGroup& group) {
      Program program(group, plans[p].second);
      for (int64_t s = 1; s <= 2; ++s) EXPECT_EQ(program.step(s), losses[static_cast<size_t>(s) - 1]);
      program.save(mine, 2);
    });
    EXPECT_TRUE(contents_of(mine / "step-2") == after_2) << "plan " << p;
    const auto& [ranks, next] = plans[(p + 1) % plans.size()];
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      Program program(group, next);
      const TrainState state =
          load_checkpoint(mine / "step-2", program.model, *program.optimizer, &group, &*program.tables);
      for (int64_t s = state.step + 1; s <= 4; ++s) EXPECT_EQ(program.step(s), losses[static_cast<size_t>(s) - 1]);
      program.save(mine, 4);
    });
    EXPECT_TRUE(contents_of(mine / "step-4") == after_4) << "plan " << p << ", resumed under the next";
  }
}

// Hosts may have file systems of their own: ranks that do not see the file send their parts of tables.
TEST(ShardedClickTraining, Rank0WritesThePartsOfRanksThatDoNotSeeTheFile) {
  const TempFolder folder;
  for (const char* host : {"first", "other"}) fs::create_directory(folder / host);
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    Program program(group, {});
    program.step(1);
    write_tensors(folder / "whole", {}, {}, nullptr, program.tables->boxes());
  });
  for (const Placements& placements : {Placements{row_wise}, {column_wise}, {data_parallel}, {table_wise}}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      Program program(group, placements);
      program.step(1);
      write_tensors(folder.path() / (group.rank() == 0 ? "first" : "other") / "tables", {}, {}, &group,
                    program.tables->boxes());
    });
    std::string bytes[2];
    for (const int i : {0, 1}) {
      std::ifstream file(i == 0 ? folder / "whole" : folder.path() / "first" / "tables", std::ios::binary);
      bytes[i].assign(std::istreambuf_iterator<char>(file), {});
    }
    EXPECT_TRUE(bytes[0] == bytes[1]) << parallel::name_of(placements[0]);
    EXPECT_FALSE(fs::exists(folder.path() / "other" / "tables"));
    fs::remove(folder.path() / "first" / "tables");
  }
}

TEST(ShardedClickTraining, ACheckpointOfOtherTablesIsRefusedAndChangesNothing) {
  const TempFolder folder;
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    Program program(group, {row_wise});
    program.step(1);
    program.save(folder / "checkpoint", 1);
    const nn::StateDict before = program.tables->gathered();
    const std::vector<nn::TableConfig> configs = models::tables_of(kModel);
    const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.05}};
    std::vector<parallel::PlannedTable> planned;
    for (const nn::TableConfig& t : configs) planned.push_back(parallel::planned_table(t, options, 1));
    const parallel::ShardedTables empty(
        configs, options, parallel::plan_embeddings(planned, {.ranks = 2, .memory_bytes = 1 << 20}), kShards, &group);
    EXPECT_NE(message_of([&] {
                save_checkpoint(folder / "empty", program.model, *program.optimizer, {}, 1, &group, &empty);
              }).find("checkpoint: the tables have no values yet"),
              std::string::npos);
    const std::string text = message_of(
        [&] { load_checkpoint(folder.path() / "checkpoint" / "step-1", program.model, *program.optimizer, &group); });
    EXPECT_NE(text.find("unexpected: tables.0.weight"), std::string::npos) << text;
    EXPECT_EQ(program.tables->steps_taken(), 1);
    load_checkpoint(folder.path() / "checkpoint" / "step-1", program.model, *program.optimizer, &group,
                    &*program.tables);
    EXPECT_EQ(program.tables->steps_taken(), 1);
    EXPECT_EQ(program.tables->gathered().size(), before.size());
  });
}

}  // namespace
}  // namespace tutti::train

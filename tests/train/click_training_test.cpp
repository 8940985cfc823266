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
#include "tutti/parallel/shards.h"
#include "tutti/parallel/table_gradients.h"
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
  Program(comm::ProcessGroup& group, const std::string& path)
      : reader({path}, kColumns), shards_group(&group), tables(kShards, &group, {4, 60, 2000}) {
    seed_all(9);
    nn::initialize(model);
    optimizer = optim::make_adamw(model.other_parameters(), {.lr = 0.01});
    shards.emplace(kShards, &group, nn::leaves_of(optimizer->parameters()));
  }
  double step(int64_t number) {
    int64_t next = 0;
    for (parallel::Shard& shard : shards->step(number)) {
      reader.skip((shard.index() - next) * kRows);
      const ClickRows rows = reader.read(kRows);
      next = shard.index() + 1;
      const Tensor logits = nn::call(model, rows.dense, rows.categories);
      auc.add(logits, rows.labels);
      shard.backward(nn::binary_cross_entropy_with_logits(logits, rows.labels, {}, LossReduction::none),
                     1.0 / (kShards * kRows));
      tables.add(shard.index(), model.tables().take_row_gradients());
    }
    reader.skip((kShards - next) * kRows);
    const double loss = shards->finish_step(*optimizer).loss;
    model.tables().step(tables.finish(), {.lr = 0.05});
    return loss;
  }
  void save(const fs::path& folder, int64_t number) const {
    save_checkpoint(folder, model, *optimizer, {.step = number, .optimizer_steps = optimizer->steps_taken(), .seed = 9},
                    1, shards_group);
  }

  models::Dlrm model{{.table_rows = {4, 60, 2000}, .dim = 6, .bottom = {9}, .top = {12}}};
  ClickReader reader;
  comm::ProcessGroup* shards_group;
  parallel::TableGradients tables;
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
  for (const auto& [name, values] : program.model.state_dict()) results.digests[name] = tensor_digest(values);
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
  EXPECT_EQ(expected.digests.count("tables.2.adagrad"), 1u);
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
      const TrainState state =
          load_checkpoint(folder.path() / "checkpoint" / "step-4", program.model, *program.optimizer, &group);
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

// Checkpoints from a training loop of the user's own: model and optimizer state are saved on some ranks and loaded on
// others, divided or not, at once or in the background.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "tests/train/support/temp_folder.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/module.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/checkpoint/background_saver.h"
#include "tutti/train/checkpoint/checkpoint.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

struct Regression final : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 7, 5}, second{this, "second", 5, 3};
  Tensor forward(const Tensor& x) const { return sum(second(mul(first(x), first(x))), {.dims = {1}}); }
};

// A program of steps that can be left after any of them.
struct Program {
  Program(comm::ProcessGroup& group, bool sharded) : group(group) {
    seed_all(9);
    if (sharded) {
      parallel::fully_shard(*model.first);
      parallel::fully_shard(model);
    }
    nn::initialize(model);
    optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.05});
    shards.emplace(8, &group, nn::leaves_of(optimizer->parameters()));
  }
  double step(int64_t number) {
    for (parallel::Shard& shard : shards->step(number)) {
      const Tensor error = sub(nn::call(model, uniform({4, 7}, -1.0, 1.0)), 1.0);
      shard.backward(mul(error, error), 1.0 / 32);
    }
    return shards->finish_step(*optimizer, {.max_norm = 1.0}).loss;
  }
  TrainState state(int64_t number) const {
    return {.step = number, .optimizer_steps = optimizer->steps_taken(), .seed = 9};
  }

  comm::ProcessGroup& group;
  Regression model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<parallel::Shards> shards;
};

// The losses of 6 steps, of which `saved_at` is the last before a checkpoint, if it is not 0.
std::vector<double> losses_of_one_rank() {
  std::vector<double> losses;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    Program program(group, false);
    for (int64_t s = 1; s <= 6; ++s) losses.push_back(program.step(s));
  });
  return losses;
}

TEST(OwnLoopCheckpoint, IsSavedAndLoadedOnAnyRanksWithTheBitsOfARunThatWasNotLeft) {
  const std::vector<double> expected = losses_of_one_rank();
  struct Layout {
    int ranks;
    bool sharded;
  };
  constexpr Layout kLayouts[] = {{1, false}, {2, true}, {3, true}, {3, false}, {5, true}};
  for (const bool in_background : {false, true}) {
    for (const Layout& before : kLayouts) {
      for (const Layout& after : kLayouts) {
        const TempFolder folder;
        const fs::path path = folder.path() / "checkpoint";
        comm::run_ranks(before.ranks, [&](comm::ProcessGroup& group) {
          Program program(group, before.sharded);
          for (int64_t s = 1; s <= 3; ++s)
            TUTTI_CHECK(program.step(s) == expected[static_cast<size_t>(s - 1)], "{}", s);
          if (!in_background) {
            save_checkpoint(path, program.model, *program.optimizer, program.state(3), 1, &group);
            return;
          }
          BackgroundSaver saver(&group, program.model, *program.optimizer);
          saver.save(path, program.model, *program.optimizer, program.state(3), 1);
          saver.before_change();
          program.step(4);  // what is saved stays that of step 3
          saver.wait();
        });
        comm::run_ranks(after.ranks, [&](comm::ProcessGroup& group) {
          Program program(group, after.sharded);
          program.step(1);  // other values, which the checkpoint replaces
          const TrainState state = load_checkpoint(path / "step-3", program.model, *program.optimizer, &group);
          for (int64_t s = state.step + 1; s <= 6; ++s) {
            const double loss = program.step(s);
            TUTTI_CHECK(loss == expected[static_cast<size_t>(s - 1)],
                        "step {} of {} ranks after {}: the loss is {:a} and was {:a}", s, after.ranks, before.ranks,
                        loss, expected[static_cast<size_t>(s - 1)]);
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train

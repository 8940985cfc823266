#include "tutti/train/checkpoint/background_saver.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/train/support/temp_folder.h"
#include "tests/train/support/tiny_model.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/creation.h"
#include "tutti/train/step/shard_model.h"

namespace tutti::train {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

Tensor numbers(int64_t count, float first) {
  const Tensor t = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i) t.data<float>()[i] = first + static_cast<float>(i);
  return t;
}

// 3 blocks and a piece, nothing, and less than a block.
NamedTensors some(float first) {
  return {{"large", numbers(3 * 65'536 + 5, first)}, {"empty", numbers(0, 0)}, {"small", numbers(7, first)}};
}

bool are_equal(const NamedTensors& a, const NamedTensors& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const auto nbytes = static_cast<size_t>(a[i].second.nbytes());
    if (nbytes > 0 && std::memcmp(a[i].second.raw_data(), b[i].second.raw_data(), nbytes) != 0) return false;
  }
  return true;
}

TEST(StateLease, WhoChangesTheTensorsCopiesWhatWasNotReached) {
  const NamedTensors live = some(1), before = some(1);
  StateLease lease(live);
  EXPECT_EQ(lease.blocks(), 5U);
  lease.begin(live);
  EXPECT_EQ(lease.complete(), 5U) << "nobody else copies";
  std::memset(live[0].second.raw_data(), 0xff, static_cast<size_t>(live[0].second.nbytes()));
  EXPECT_TRUE(are_equal(lease.copies(), before));
  EXPECT_EQ(lease.complete(), 0U);
  lease.begin(live);
  lease.copy();
  EXPECT_EQ(lease.complete(), 0U) << "the copier has reached all";
  EXPECT_TRUE(are_equal(lease.copies(), live));
}

TEST(StateLease, EachBlockIsCopiedOnceWhileBothCopy) {
  const NamedTensors live = some(1);
  StateLease lease(live);
  for (int round = 0; round < 20; ++round) {
    const NamedTensors values = some(static_cast<float>(round) * 3.0F);
    for (size_t i = 0; i < live.size(); ++i)
      std::memcpy(live[i].second.raw_data(), values[i].second.raw_data(),
                  static_cast<size_t>(values[i].second.nbytes()));
    lease.begin(live);
    std::thread copier([&] { lease.copy(10us); });
    lease.complete();
    for (const auto& [name, t] : live) std::memset(t.raw_data(), 0xff, static_cast<size_t>(t.nbytes()));  // poison
    copier.join();
    ASSERT_TRUE(are_equal(lease.copies(), values)) << "round " << round;
  }
}

TEST(StateLease, APartBetweenThoseOfOthersIsCopiedAtOnce) {
  const Tensor whole = Tensor::empty({4, 6});
  for (int64_t i = 0; i < 24; ++i) whole.data<float>()[i] = static_cast<float>(i);
  const NamedTensors live{{"columns", whole.view_as({4, 2}, whole.strides(), 2)}};
  StateLease lease(live);
  lease.begin(live);
  std::memset(whole.raw_data(), 0xff, static_cast<size_t>(whole.nbytes()));
  lease.copy();
  lease.complete();
  const float* const seen = lease.copies()[0].second.data<float>();
  EXPECT_EQ(std::vector<float>(seen, seen + 8), (std::vector<float>{2, 3, 8, 9, 14, 15, 20, 21}));
}

TEST(StateLease, RefusesOtherTensorsAndASecondLease) {
  const NamedTensors live = some(1);
  StateLease lease(live);
  const auto refused = [&](const NamedTensors& tensors) {
    try {
      lease.begin(tensors);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_NE(refused({{"large", numbers(3, 0)}}).find("1 tensors; expected the 3 of before"), std::string::npos);
  EXPECT_NE(refused({{"large", numbers(3, 0)}, live[1], live[2]}).find("'large' is"), std::string::npos);
  lease.begin(live);
  EXPECT_NE(refused(live).find("the lease before has not ended; complete() it"), std::string::npos);
  lease.complete();
}

struct Trained {
  explicit Trained(comm::ProcessGroup* group) : model(tiny_config(2), 64) {
    if (group != nullptr)
      shard_model(model, {.data_parallel_replicate_degree = 1, .data_parallel_shard_degree = -1}, group);
    seed_all(4);
    nn::initialize(model);
    optimizer = optim::make_adamw(model.named_parameters());
    step();
  }
  void step() {
    std::vector<Tensor> grads;
    for (const nn::NamedParameter& p : optimizer->parameters()) {
      const Tensor whole = full(to_shape(p.parameter.sizes()), 0.25);
      const Tensor master = p.parameter.master();
      grads.push_back(dist::is_dtensor(master)
                          ? dist::distribute_tensor(whole, dist::mesh_of(master), dist::placements_of(master),
                                                    {.layout = {.cut = dist::Cut::chunk}, .src_data_rank = -1})
                          : whole);
    }
    optimizer->step(grads, 0.01);
  }
  models::Decoder model;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// Saves in the background behind a copier that is delayed, changes everything meanwhile, and returns the model's file.
std::string saved_while_changing(int ranks, const fs::path& folder, bool with_protocol) {
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    Trained trained(&group);
    BackgroundSaver saver(&group, trained.model, *trained.optimizer, nullptr, 2ms);
    saver.save(folder, trained.model, *trained.optimizer, {.step = 1, .optimizer_steps = 1, .seed = 4}, 0);
    if (with_protocol) saver.before_change();
    trained.step();
    saver.wait();
  });
  return contents_of(folder / "step-1" / kModelFile) + contents_of(folder / "step-1" / kOptimizerFile);
}

TEST(BackgroundSaver, SavesTheStepAtWhichItWasCalledWhateverChangesMeanwhile) {
  const TempFolder folder;
  const Trained alone(nullptr);
  save_checkpoint(folder / "alone", alone.model, *alone.optimizer, {.step = 1, .optimizer_steps = 1, .seed = 4}, 0);
  const std::string expected =
      contents_of(folder / "alone/step-1" / kModelFile) + contents_of(folder / "alone/step-1" / kOptimizerFile);
  for (const int ranks : {1, 2, 3}) {
    EXPECT_TRUE(saved_while_changing(ranks, folder.path() / fmt::format("with-{}", ranks), true) == expected) << ranks;
  }
}

TEST(BackgroundSaver, WithoutTheProtocolADelayedCopierReadsLaterValues) {
  const TempFolder folder;
  EXPECT_FALSE(saved_while_changing(2, folder / "without", false) == saved_while_changing(2, folder / "with", true));
}

}  // namespace
}  // namespace tutti::train

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "tests/nn/support/user_and_item_tables.h"
#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/table_batched_embedding.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"

namespace tutti::nn {
namespace {

TEST(TableBatchedEmbeddingBagsStep, SumsVirtualShardsByTheirNumbersInAnyOrderAndOnThreads) {
  const auto run = [](std::vector<int64_t> order, bool threads, bool named) {
    const auto module = filled(options_of(TableStep{.lr = 0.1}));
    const auto shard = [&](int64_t s) {
      const std::optional<int64_t> number = named ? std::optional(s) : std::nullopt;
      backward(loss_of(module->forward(drawn(40 + static_cast<uint64_t>(s)), number)));
    };
    std::vector<std::thread> running;
    for (const int64_t s : order) {
      if (threads) running.emplace_back(shard, s);
      else shard(s);
    }
    for (std::thread& t : running) t.join();
    module->step();
    return module->state_dict();
  };
  const StateDict expected = run({0, 1, 2, 3}, false, false);
  for (const StateDict& state :
       {run({0, 1, 2, 3}, false, true), run({2, 3, 0, 1}, false, true), run({3, 1, 0, 2}, true, true)}) {
    for (size_t i = 0; i < expected.size(); ++i) expect_same_bits(state[i].second, expected[i].second);
  }
}

TEST(TableBatchedEmbeddingBagsStep, NeitherSeesAnUpdateOfTheSameStepNorStepsWhatNoBackwardReached) {
  const auto module = filled(options_of(TableStep{.optimizer = TableOptimizer::sgd}));
  const Tensor before = clone(module->weight(0).master());
  const Tensor first = module->forward(drawn(1)), unused = module->forward(drawn(2));
  backward(loss_of(first));
  expect_same_bits(module->weight(0).master(), before);
  expect_same_bits(detach(module->forward(drawn(1))), detach(first));
  module->step();
  EXPECT_EQ(message_of([&] { module->step(); }),
            "TableBatchedEmbeddingBags::step: backward() reached no lookup since the last step; lookups count that "
            "training mode records");
  backward(loss_of(module->forward(drawn(3))));
  module->abandon_step();
  EXPECT_THROW(module->step(), UsageError);
  {
    const NoGradScope no_grad;
    module->forward(drawn(3));
  }
  EXPECT_EQ(module->steps_taken(), 1);
}

// ---- what may change between forward and step -----------------------------------------------------------------------

TEST(TableBatchedEmbeddingBagsStep, RefusesABatchThatWasWrittenAfterTheForward) {
  const auto module = filled(options_of(TableStep{}));
  const Tensor before = clone(module->weight(0).master());
  const char* const names[] = {"indices", "offsets", "per_sample_weights"};
  for (size_t i = 0; i < 3; ++i) {
    TableBatch batch = drawn(5);
    batch.per_sample_weights = facets::sample_tensor(6, batch.indices.extents());
    const Tensor written[] = {batch.indices, batch.offsets, batch.per_sample_weights};
    const uint32_t version = written[i].version();
    backward(loss_of(module->forward(batch, 3)));
    copy_(written[i], clone(written[i]));
    EXPECT_EQ(message_of([&] { module->step(); }),
              fmt::format("TableBatchedEmbeddingBags::step: the {} of virtual shard 3 were changed in place after the "
                          "forward (version {} then, {} now); give the forward tensors that stay as they are until "
                          "step()",
                          names[i], version, version + 1));
    expect_same_bits(module->weight(0).master(), before);
    module->abandon_step();
  }
}

TEST(TableBatchedEmbeddingBagsStep, RefusesTablesThatWereLoadedAfterTheForwardAndDropsLookupsWithTheState) {
  const auto module = filled(options_of(TableStep{}));
  StateDict values;
  for (const auto& [name, t] : module->state_dict()) values.emplace_back(name, clone(t));
  backward(loss_of(module->forward(drawn(1))));
  module->load_state_dict(values);
  EXPECT_NE(message_of([&] { module->step(); }).find("table user was changed after the forward of virtual shard 0"),
            std::string::npos);
  StateDict state;
  for (const auto& [name, t] : module->optimizer_state()) state.emplace_back(name, clone(t));
  module->load_optimizer_state(state);
  EXPECT_NE(message_of([&] { module->step(); }).find("reached no lookup"), std::string::npos);
}

TEST(TableBatchedEmbeddingBagsStep, ChecksAllTablesBeforeItWritesOne) {
  const auto module = filled(options_of(TableStep{}));
  const Tensor before = clone(module->weight(0).master());
  TableBatch batch = drawn(1);
  backward(loss_of(module->forward(batch)));
  // The item table is the second to be stepped. A pointer writes what no version shows.
  const int64_t at = batch.offsets.data<int64_t>()[kBags];
  const int64_t good = std::exchange(batch.indices.data<int64_t>()[at], 20);
  EXPECT_NE(message_of([&] { module->step(); }).find("the first is 20 of feature 1"), std::string::npos);
  expect_same_bits(module->weight(0).master(), before);
  EXPECT_EQ(module->steps_taken(), 0);
  batch.indices.data<int64_t>()[at] = good;
  module->step();
  const auto other = filled(options_of(TableStep{}));
  backward(loss_of(other->forward(drawn(1))));
  other->step();
  for (size_t t = 0; t < 2; ++t) expect_same_bits(module->weight(t).master(), other->weight(t).master());
}

TEST(TableBatchedEmbeddingBagsStep, AbandonsAStepThatFailsBehindTheFirstWrite) {
  const auto module = filled(options_of(TableStep{.optimizer = TableOptimizer::sgd}));
  module->weight(1).set_master(expand(zeros({1, 5}), {20, 5}));  // whose rows share memory, which no op writes
  backward(loss_of(module->forward(drawn(1))));
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(module->step(), UsageError);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("the step is abandoned"), std::string::npos);
  const Tensor once = clone(module->weight(0).master());
  EXPECT_NE(message_of([&] { module->step(); }).find("reached no lookup"), std::string::npos);
  expect_same_bits(module->weight(0).master(), once);
}

TEST(TableBatchedEmbeddingBagsStep, CountsOnlyWhatTrainingModeLooksUp) {
  const auto module = filled(options_of(TableStep{}));
  module->eval();
  EXPECT_FALSE(requires_grad(module->forward(drawn(1))));
  module->train();
  const auto other = filled(options_of(TableStep{}));
  for (const auto* m : {module.get(), other.get()}) {
    backward(loss_of(m->forward(drawn(2))));
    backward(loss_of(m->forward(drawn(3))));
  }
  module->step();
  other->step();
  expect_same_bits(module->weight(0).master(), other->weight(0).master());
}

// ---- kinds of backward ----------------------------------------------------------------------------------------------

TEST(TableBatchedEmbeddingBagsStep, StepsTheSameAfterAnyKindOfBackward) {
  const auto weight_after = [](auto run) {
    const auto module = filled(options_of(TableStep{}));
    run(*module);
    module->step();
    return clone(module->weight(0).master());
  };
  const Tensor expected = weight_after([](auto& m) { backward(loss_of(m.forward(drawn(1)))); });
  expect_same_bits(weight_after([](auto& m) { backward(loss_of(m.forward(drawn(1))), {}, {.per_use = true}); }),
                   expected);
  expect_same_bits(weight_after([](auto& m) { backward(loss_of(m.forward(drawn(1))), {}, {.create_graph = true}); }),
                   expected);
  expect_same_bits(weight_after([](auto& m) {
                     const std::vector<Tensor> none;
                     backward(checkpoint([&m](std::span<const Tensor>) { return loss_of(m.forward(drawn(1))); }, none));
                   }),
                   expected);
  expect_same_bits(weight_after([](auto& m) {
                     TableBatch batch = drawn(1);
                     batch.per_sample_weights = ones(to_shape(batch.indices.extents()));
                     requires_grad_(batch.per_sample_weights);
                     backward(loss_of(m.forward(batch)), {}, {.per_use = true});
                   }),
                   expected);
  // Two backwards add up.
  const Tensor twice = weight_after([](auto& m) {
    const Tensor loss = loss_of(m.forward(drawn(1)));
    backward(loss, {}, {.retain_graph = true});
    backward(loss);
  });
  expect_same_bits(twice, weight_after([](auto& m) { backward(mul(loss_of(m.forward(drawn(1))), 2.0)); }));
}

TEST(TableBatchedEmbeddingBagsStep, ABackwardAfterTheStepCountsForNoStep) {
  const auto module = filled(options_of(TableStep{}));
  const Tensor loss = loss_of(module->forward(drawn(1))), late = loss_of(module->forward(drawn(2)));
  backward(loss);
  module->step();
  backward(late);
  EXPECT_NE(message_of([&] { module->step(); }).find("reached no lookup"), std::string::npos);
}

TEST(TableBatchedEmbeddingBagsStep, DoesNotTakePartInACompiledFunction) {
  const auto module = filled(options_of(TableStep{}));
  const auto compiled = compile([&](const Tensor& w) {
    TableBatch batch = drawn(1);
    batch.per_sample_weights = w;
    return module->forward(batch);
  });
  const Tensor weights = facets::sample_tensor(6, drawn(1).indices.extents());
  EXPECT_NE(message_of([&] {
              compiled(weights);
            }).find("TableBatchedEmbeddingBags: a compiled function would look up the batch of its trace"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::nn

// outer_dp_sharding_strategy = optim: replicas of divided parameters (HSDP) divide masters, gradients and optimizer
// state among all ranks.
#include "tests/comm/support/forked_ranks.h"
#include "tests/parallel/support/sharded_training.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/reduction.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

Options over_all(Options options) {
  options.outer = OuterDpSharding::optim;
  return options;
}

TEST(OuterSharding, HasTheBitsOfOneRankWhereRanksShareMemory) {
  for (const int ranks : {4, 6, 8}) expect_the_bits_of_one_rank(ranks, over_all({.replicas = 2}));
  expect_the_bits_of_one_rank(6, over_all({.replicas = 3, .dtype = DType::bf16, .checkpoints = true}));
  expect_the_bits_of_one_rank(4, over_all({.replicas = 2,
                                           .schedule = Schedule::every_round,
                                           .reshard = int64_t{2},
                                           .compiled = true}));  // all that divide copies
  expect_the_bits_of_one_rank(2, over_all({.replicas = 2}));     // of one rank each
  expect_the_bits_of_one_rank(2, over_all({.replicas = 1}));     // nothing to divide further
}

TEST(OuterSharding, HasThemWhereRanksGather) {
  for (const int ranks : {4, 6, 8}) expect_the_bits_of_one_rank(ranks, over_all({.replicas = 2}), "gloo");
  expect_the_bits_of_one_rank(6, over_all({.replicas = 3, .dim = 1, .dtype = DType::bf16, .checkpoints = true}),
                              "gloo");  // in the second round only two of the ranks have a shard
  expect_the_bits_of_one_rank(4, over_all({.replicas = 2, .schedule = Schedule::every_round, .prefetch = 3}), "gloo");
  expect_the_bits_of_one_rank(4, over_all({.replicas = 2, .overlap = Overlap::backward, .reshard = false}), "gloo");
  expect_the_bits_of_one_rank(8, over_all({.replicas = 2, .reshard = int64_t{2}}), "gloo");
  expect_the_bits_of_one_rank(4, over_all({.replicas = 2, .dtype = DType::bf16, .compiled = true, .evaluates = true}),
                              "gloo");
  expect_the_bits_of_one_rank(4, over_all({.replicas = 2, .values_before = true, .sgd = true}), "gloo");
  expect_the_bits_of_one_rank(2, over_all({.replicas = 2}), "gloo");
}

// Two hosts of two ranks: those of a host read one copy, of which each host has one.
TEST(OuterSharding, HasThemBetweenHostsWhoseRanksShareMemory) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Options options = over_all({.replicas = 2, .dtype = dtype, .evaluates = true});
    const auto ranks = comm::run_world(
        4,
        [&](comm::ProcessGroup& world) {
          const Trained expected = train(nullptr, options);
          const Trained result = train(&world, options);
          TUTTI_CHECK(
              result.losses == expected.losses && result.norms == expected.norms && result.weights == expected.weights,
              "rank {} has other bits", world.rank());
          Model model;
          TUTTI_CHECK(
              fully_shard(model, {.mesh = mesh_for(world, 2), .outer_dp_sharding_strategy = OuterDpSharding::optim})
                  .is_shared(),
              "the ranks of a host gather");
        },
        {.transport = "hier"});
    for (const comm::ForkedResult& rank : ranks) EXPECT_TRUE(rank.succeeded()) << rank.error;
  }
}

// A matrix that 2 x 3 ranks divide: which rows a rank stores, what it has of the gradient and of the moments, and what
// it sends and keeps.
TEST(OuterSharding, DividesMasterGradientAndStateOverAllRanksAndCopiesOverShards) {
  constexpr int64_t kOut = 13, kIn = 64;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    comm::run_ranks(
        6,
        [&](comm::ProcessGroup& group) {
          seed_all(5);
          nn::Linear model(kIn, kOut, {.bias = false});
          if (dtype != DType::f32) model.to(dtype);
          const ShardedModule sharded = fully_shard(model, {.mesh = mesh_for(group, 2),
                                                            .reshard_after_forward = true,
                                                            .outer_dp_sharding_strategy = OuterDpSharding::optim});
          nn::initialize(model);
          const auto optimizer = optim::make_adamw(model.named_parameters());
          Shards shards(8, &group, nn::leaves_of(optimizer->parameters()));
          // Shards of 5, 5 and 3 rows, of which replica 0 stores 3, 3 and 2 and replica 1 the rest.
          const int64_t rows[] = {3, 3, 2, 2, 2, 1}, first[] = {0, 5, 10, 3, 8, 12}, of_shard[] = {5, 5, 3};
          const auto r = static_cast<size_t>(group.rank());
          const auto part_of = [](const Tensor& t) { return dist::part_of(t, "test").local; };
          const nn::Parameter weight = optimizer->parameters()[0].parameter;
          TUTTI_CHECK(sharded.stored_bytes() == rows[r] * kIn * 4 && weight.stored().size(0).guard_int() == rows[r],
                      "{} bytes", sharded.stored_bytes());
          const Tensor whole = dist::full_tensor(weight.master());
          for (int64_t i = 0; i < rows[r] * kIn; ++i)
            TUTTI_CHECK(weight.stored().data<float>()[i] == whole.data<float>()[first[r] * kIn + i], "element {}", i);

          auto& rank = RankContext::current();
          const auto held_bytes = [&] {
            return rank.allocator().statistics().current_by_category[static_cast<size_t>(MemoryCategory::parameters)];
          };
          const int64_t held_before = held_bytes(), sent_before = rank.sent_bytes;
          for (Shard& shard : shards.step(1)) {
            const Tensor loss = sum(cast(nn::call(model, full({2, kIn}, 0.5, dtype)), DType::f32));
            shard.backward(loss);
          }
          // Once the pieces of the replicas, then the other shards' parts for each forward and backward. Words of 8
          // bytes and the transport's own are more.
          const int64_t item = itemsize(dtype), sent = rank.sent_bytes - sent_before;
          const int64_t pieces = rows[r] * kIn * item, gathers = 2 * of_shard[r % 3] * kIn * item * shards.rounds() * 2;
          TUTTI_CHECK(sent >= pieces + gathers && sent <= pieces + gathers + 1024, "{} bytes sent; expected {} + {}",
                      sent, pieces, gathers);
          TUTTI_CHECK(held_bytes() - held_before <= of_shard[r % 3] * kIn * item + 4096,
                      "{} bytes of copies are held after backward", held_bytes() - held_before);
          const ShardSums sums = shards.finish();
          TUTTI_CHECK(part_of(sums.gradients[0]).size(0).guard_int() == rows[r], "{}",
                      describe(part_of(sums.gradients[0])));
          optimizer->step(sums.gradients, 0.1);
          for (const auto& [name, state] : optimizer->state())
            TUTTI_CHECK(!dist::is_dtensor(state) || part_of(state).size(0).guard_int() == rows[r], "{}: {}", name,
                        describe(state));
        },
        {.transport = "gloo"});
  }
}

TEST(OuterShardingErrors, NameTheStrategies) {
  EXPECT_EQ(message_of([] { parse_outer_dp_sharding("zero"); }),
            "'zero' is no strategy for replicas of divided parameters; expected no_shard or optim");
  comm::run_ranks(
      4,
      [](comm::ProcessGroup& group) {
        Model model;
        const dist::Mesh mesh = mesh_for(group, 2);
        fully_shard(*(*model.blocks)[0], {.mesh = mesh, .outer_dp_sharding_strategy = OuterDpSharding::optim});
        fully_shard(model, {.mesh = mesh});
        nn::initialize(model);
        std::vector<Tensor> leaves = nn::leaves_of(model.named_parameters());
        const std::string said = message_of([&] { Shards(8, &group, leaves); });
        TUTTI_CHECK(said.find("parts; give all the same outer_dp_sharding_strategy") != std::string::npos, "{}", said);
      },
      {.transport = "gloo"});
}

}  // namespace
}  // namespace tutti::parallel

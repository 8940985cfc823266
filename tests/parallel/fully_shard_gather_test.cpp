// fully_shard where ranks do not share memory: copies are gathered when they are read, and given back between forward
// and backward.
#include "tests/parallel/support/sharded_training.h"
#include "tutti/autograd/backward.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

TEST(FullyShard, HasThemWhereRanksGather) {
  for (const int ranks : {2, 3}) {
    expect_the_bits_of_one_rank(ranks, {}, "gloo");
    expect_the_bits_of_one_rank(ranks, {.reshard = false}, "gloo");
    expect_the_bits_of_one_rank(ranks, {.schedule = Schedule::every_round, .reshard = true}, "gloo");
    expect_the_bits_of_one_rank(ranks, {.dtype = DType::bf16, .checkpoints = true}, "gloo");
    expect_the_bits_of_one_rank(ranks, {.dtype = DType::bf16, .compiled = true}, "gloo");
    expect_the_bits_of_one_rank(ranks, {.dim = 1}, "gloo");
    for (const int prefetch : {0, 3}) expect_the_bits_of_one_rank(ranks, {.prefetch = prefetch}, "gloo");
  }
  expect_the_bits_of_one_rank(5, {}, "gloo");  // in the second round only three of the ranks have a shard
  expect_the_bits_of_one_rank(4, {.replicas = 2}, "gloo");
}

// A number of ranks among which copies are kept after forward.
TEST(FullyShard, HasThemWhereFewerRanksKeepTheCopies) {
  for (const int64_t reshard_degree : {1, 2, 4}) expect_the_bits_of_one_rank(4, {.reshard = reshard_degree}, "gloo");
  expect_the_bits_of_one_rank(6, {.reshard = 3}, "gloo");  // in the second round only two of the ranks have a shard
  expect_the_bits_of_one_rank(
      6, {.schedule = Schedule::every_round, .reshard = 2, .dim = 1, .checkpoints = true, .prefetch = 2}, "gloo");
  expect_the_bits_of_one_rank(4, {.reshard = 2, .dtype = DType::bf16, .checkpoints = true}, "gloo");
  expect_the_bits_of_one_rank(4, {.reshard = 2, .compiled = true}, "gloo");
  expect_the_bits_of_one_rank(8, {.replicas = 2, .reshard = 2}, "gloo");
}

// What a rank sends in one forward and backward, by the number of ranks among which copies are kept; and what it holds
// between them.
TEST(FullyShard, BackwardGathersAmongThoseThatHaveKeptTheCopies) {
  std::array<std::array<int64_t, 2>, 3> sent{}, held{};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t reshard_degree = int64_t{1} << i;
    comm::run_ranks(
        4,
        [&](comm::ProcessGroup& group) {
          seed_all(5);
          nn::Linear model(64, 256, {.bias = false});
          const ShardedModule sharded =
              fully_shard(model, {.mesh = mesh_for(group, 1), .reshard_after_forward = reshard_degree});
          nn::initialize(model);
          Shards shards(4, &group, nn::leaves_of(model.named_parameters()));
          const auto forward = [&] { return sum(nn::call(model, full({2, 64}, 0.5))); };
          auto& rank = RankContext::current();
          const auto held_bytes = [&] {
            return rank.allocator().statistics().current_by_category[static_cast<size_t>(MemoryCategory::parameters)];
          };
          const int64_t before = rank.sent_bytes, held_before = held_bytes();
          {
            Shard shard = shards.open(group.rank());
            const Tensor loss = forward();
            const int64_t between = rank.sent_bytes, held_between = held_bytes();
            TUTTI_CHECK(sharded.is_unsharded() == (reshard_degree == 1),
                        "between forward and backward, a reshard degree of {}", reshard_degree);
            backward(loss, ones(loss.sizes()), {.sink = shard.sink()});
            if (group.rank() == 3) {
              sent[i] = {between - before, rank.sent_bytes - between};
              held[i] = {held_between - held_before, held_bytes() - held_before};
            }
            shard.add(loss);
          }
          shards.finish();
          // Forwards without backward gather from what was kept, and hold no more.
          const NoGradScope no_grad;
          forward();
          const int64_t once = held_bytes();
          for (int again = 0; again < 3; ++again) forward();
          TUTTI_CHECK(held_bytes() == once, "{} bytes after one forward and {} after four", once, held_bytes());
        },
        {.transport = "gloo"});
  }
  const int64_t bytes = 64 * 256 * 4;
  for (size_t i = 0; i < 3; ++i) EXPECT_GE(sent[i][0], bytes / 4 * 3) << "forward gathers from all ranks";
  EXPECT_EQ(sent[0][1], 0);
  EXPECT_LT(sent[1][1], sent[2][1]);
  EXPECT_NEAR(static_cast<double>(sent[1][1]), bytes / 2, bytes / 16);
  EXPECT_NEAR(static_cast<double>(sent[2][1]), bytes / 4 * 3, bytes / 16);
  EXPECT_EQ(held[0][0], bytes);
  EXPECT_EQ(held[1][0], bytes / 2);
  EXPECT_EQ(held[2][0], 0);
  EXPECT_EQ(held[1][1], 0) << "nothing is kept after backward";
}

TEST(FullyShardErrors, NameTheNumbersOfRanksThatCanKeepCopies) {
  const auto refused = [](const std::string& transport, int64_t reshard_degree) {
    std::string message;
    comm::run_ranks(4,
                    [&](comm::ProcessGroup& group) {
                      Model model;
                      try {
                        fully_shard(model, {.mesh = mesh_for(group, 1), .reshard_after_forward = reshard_degree});
                      } catch (const UsageError& e) {
                        if (group.rank() == 1) message = e.what();
                      }
                    },
                    {.transport = transport});
    return message;
  };
  for (const int64_t reshard_degree : {-1, 0, 3, 8}) {
    EXPECT_EQ(refused("gloo", reshard_degree),
              fmt::format("fully_shard: reshard_after_forward = {}: groups of {} do not make up the 4 ranks that "
                          "divide the parameters; expected 1 (false), 2, 4 (true)",
                          reshard_degree, reshard_degree));
  }
  for (const int64_t reshard_degree : {1, 2, 4}) EXPECT_EQ(refused("gloo", reshard_degree), "");
  for (const int64_t reshard_degree : {1, 4}) EXPECT_EQ(refused("threads", reshard_degree), "");
  EXPECT_NE(refused("threads", 2)
                .find("the 4 ranks read one copy of the parameters in the memory of their host, gather nothing and "
                      "have nothing to give back"),
            std::string::npos);
}

TEST(FullyShard, GivesCopiesBackBetweenForwardAndBackward) {
  comm::run_ranks(
      2,
      [&](comm::ProcessGroup& group) {
        seed_all(5);
        Model model;
        const FullyShardOptions options{.mesh = mesh_for(group, 1)};
        const ShardedModule block = fully_shard(*(*model.blocks)[0], options), root = fully_shard(model, options);
        nn::initialize(model);
        EXPECT_FALSE(root.is_shared());
        EXPECT_FALSE(block.is_unsharded());
        std::vector<Tensor> leaves = nn::leaves_of(model.named_parameters());
        std::erase_if(leaves, [](const Tensor& leaf) { return !requires_grad(leaf); });
        Shards shards(2, &group, leaves);
        {
          Shard shard = shards.open(group.rank());
          const Tensor losses = model.losses(numbers(0, group.rank(), 0), numbers(0, group.rank(), 5), false);
          EXPECT_FALSE(block.is_unsharded()) << "between forward and backward";
          EXPECT_TRUE(root.is_unsharded()) << "the root keeps its copies";
          shard.backward(losses);
          EXPECT_FALSE(block.is_unsharded()) << "when backward has its gradients";
        }
        shards.finish();
        {
          const UnshardedScope whole(root);
          if (group.rank() == 0) model.losses(numbers(0, 0, 0), numbers(0, 0, 5), false);
          EXPECT_TRUE(block.is_unsharded()) << "while a scope keeps them, one rank may read alone";
        }
        EXPECT_FALSE(block.is_unsharded());
        block.unshard();
        EXPECT_TRUE(block.is_unsharded());
        block.reshard();
        EXPECT_FALSE(block.is_unsharded());
      },
      {.transport = "gloo"});
}

}  // namespace
}  // namespace tutti::parallel

// fully_shard where ranks do not share memory: copies are gathered when they are read, and given back between forward and backward.
#include "tests/parallel/support/sharded_training.h"

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

TEST(FullyShard, GivesCopiesBackBetweenForwardAndBackward) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
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
    const Tensor losses = model.losses(numbers(0, group.rank(), 0), numbers(0, group.rank(), 5), false);
    EXPECT_FALSE(block.is_unsharded()) << "between forward and backward";
    EXPECT_TRUE(root.is_unsharded()) << "the root keeps its copies";
    backward(losses, ones(losses.sizes()), {.sink = shards.sink()});
    EXPECT_FALSE(block.is_unsharded()) << "when backward has its gradients";
    shards.add(losses);
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
  }, {.transport = "gloo"});
}

}  // namespace
}  // namespace tutti::parallel

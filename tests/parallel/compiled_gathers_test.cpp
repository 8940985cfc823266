// Gathers inside compiled functions: a call asks for the copies of a group before the first step that reads them and
// gives them back after the last one, in forward and backward.
#include "tests/parallel/support/chain.h"
#include "tutti/graph/compile.h"
#include "tutti/runtime/size_class.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kBlocks = 8;

// One graph with forward and backward.
auto compiled_step(ShardedChain& chain) {
  return compile(
      [&chain](const Tensor& x) {
        const Tensor loss = nn::call(chain.model, x);
        backward(loss, ones(loss.sizes()), {.sink = chain.shards->sink()});
        return detach(loss);
      },
      {.name = "step"});
}

TEST(CompiledGathers, FollowTheBlocksInForwardAndBackward) {
  comm::run_ranks(
      2,
      [&](comm::ProcessGroup& group) {
        ShardedChain chain(group, 4);
        const auto step = compiled_step(chain);
        // In the first round nothing is known of the order; in the second each group is on its way while the one before
        // is read. The last block stays between its forward and its backward.
        const std::vector<std::string> expected[] = {
            {"start (the model)", "end", "start (blocks.0)", "end", "start (blocks.1)", "end", "start (blocks.2)",
             "end", "start (blocks.3)", "end", "start (blocks.2)", "end", "start (blocks.1)", "end", "start (blocks.0)",
             "end"},
            {"start (blocks.0)", "end", "start (blocks.1)", "end", "start (blocks.2)", "end", "start (blocks.3)", "end",
             "start (blocks.2)", "end", "start (blocks.1)", "end", "start (blocks.0)", "end"}};
        for (int round = 0; round < 3; ++round) {
          chain.shards->abandon();  // so that the parameters stay
          const Shard shard = chain.open();
          Profiler profiler;
          TUTTI_CHECK(profiler.start({.filter = TraceFilter::this_rank, .memory = false}).ok(), "no session");
          step(full({2, kWidth}, 0.5));
          profiler.stop();
          const std::vector<std::string> found = gathers_in(profiler.trace()), &wanted = expected[std::min(round, 1)];
          if (round < 2)
            TUTTI_CHECK(found == wanted, "round {}: {}; expected {}", round, fmt::join(found, ", "),
                        fmt::join(wanted, ", "));
          for (const ShardedModule& block : chain.blocks)
            TUTTI_CHECK(!block.is_unsharded(), "a block is whole after the call");
          TUTTI_CHECK(chain.root->is_unsharded(), "the root gives its copies back");
        }
      },
      {.transport = "gloo"});
}

// The weights are frozen, so that nothing else takes memory.
TEST(CompiledGathers, HoldTwoBlocksAtATime) {
  for (const bool is_one_graph : {true, false}) {
    comm::run_ranks(
        2,
        [&](comm::ProcessGroup& group) {
          ShardedChain chain(group, kBlocks);
          chain.model.requires_grad_(false);
          const auto forward = compile([&](const Tensor& x) { return nn::call(chain.model, x); }, {.name = "forward"});
          const auto both = compile(
              [&](const Tensor& x) {
                const Tensor loss = nn::call(chain.model, x);
                backward(loss);
                return detach(loss);
              },
              {.name = "both"});
          chain.root->unshard();
          auto& allocator = RankContext::current().allocator();
          const int64_t before = held_bytes(), whole = block_bytes(kWidth * kWidth * 4), part = whole / 2;
          for (int round = 0; round < 4; ++round) {
            chain.shards->abandon();
            const Shard shard = chain.open();
            const Tensor x = requires_grad_(full({2, kWidth}, 0.5));
            allocator.reset_peak();
            if (is_one_graph) both(x);
            else backward(forward(x));
            const int64_t most =
                allocator.statistics().at_peak_by_category[static_cast<size_t>(MemoryCategory::parameters)] - before;
            // Two blocks: one whose copies are written, beside what has come and what this rank brought, and one on its
            // way.
            TUTTI_CHECK(most >= whole && most <= 3 * whole + 2 * part,
                        "{} graph, round {}: {} bytes of copies at the peak, {} in all", is_one_graph ? "one" : "two",
                        round, most, kBlocks * whole);
            TUTTI_CHECK(held_bytes() - before <= part, "{} bytes of copies after the call", held_bytes() - before);
          }
        },
        {.transport = "gloo"});
  }
}

// An optimizer that steps between calls, evaluations op by op between them, and a rank that has no shard in the second
// round.
TEST(CompiledGathers, ChangeNoBit) {
  for (const int ranks : {2, 3, 5}) {
    expect_the_bits_of_one_rank(ranks, {.compiled = true, .evaluates = true}, "gloo");
    expect_the_bits_of_one_rank(ranks,
                                {.schedule = Schedule::every_round,
                                 .reshard = true,
                                 .dtype = DType::bf16,
                                 .compiled = true,
                                 .checkpoints = true},
                                "gloo");
  }
  expect_the_bits_of_one_rank(4, {.reshard = int64_t{2}, .compiled = true, .prefetch = 2}, "gloo");
  expect_the_bits_of_one_rank(6, {.replicas = 3, .compiled = true, .outer = OuterDpSharding::optim}, "gloo");
  expect_the_bits_of_one_rank(3, {.overlap = Overlap::backward, .reshard = false, .compiled = true}, "gloo");
}

// Forward and backward in graphs of their own, between which everything is given back; an argument that changes
// compiles again.
TEST(CompiledGathers, AlsoOfAGraphForBackwardAlone) {
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) {
                    ShardedChain chain(group);
                    const auto forward =
                        compile([&](const Tensor& x) { return nn::call(chain.model, x); }, {.name = "forward"});
                    for (const int64_t rows : {2, 3, 2}) {
                      const Tensor x = requires_grad_(full({rows, kWidth}, 0.25)),
                                   again = requires_grad_(full({rows, kWidth}, 0.25));
                      const Tensor loss = forward(x);
                      for (const ShardedModule& block : chain.blocks)
                        TUTTI_CHECK(!block.is_unsharded(), "a block is whole between forward and backward");
                      backward(loss, ones(loss.sizes()));
                      const Tensor eager = nn::call(chain.model, again);
                      backward(eager, ones(eager.sizes()));
                      TUTTI_CHECK(std::memcmp(loss.raw_data(), eager.raw_data(), 4) == 0, "the loss has other bits");
                      TUTTI_CHECK(std::memcmp(grad_of(x).raw_data(), grad_of(again).raw_data(),
                                              static_cast<size_t>(grad_of(x).nbytes())) == 0,
                                  "the gradient has other bits");
                    }
                  },
                  {.transport = "gloo"});
}

}  // namespace
}  // namespace tutti::parallel

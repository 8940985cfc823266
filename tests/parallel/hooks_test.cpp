// Hooks of parameters in data-parallel loops: once a step, on the finished gradient, in the same order on every rank.
#include <gtest/gtest.h>

#include "tutti/autograd/backward.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/parallel/shards.h"

namespace tutti::parallel {
namespace {

namespace functional = comm::functional;

Tensor leaf(float value) {
  const Tensor t = Tensor::of<float>({value});
  requires_grad_(t);
  return t;
}

// The gradient of a shard is (2 (s + 1), s + 1): `a` has two uses.
void run_shards(Shards& shards, const Tensor& a, const Tensor& b) {
  for (const int64_t s : shards.local_shards()) {
    const double x = static_cast<double>(s + 1);
    const Tensor loss = add(add(mul(a, x), mul(a, x)), mul(b, x));
    backward(loss, {}, {.sink = shards.sink()});
    shards.add(loss);
  }
}

TEST(ShardHooks, RunOnceAStepOnTheFinishedGradient) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    for (const int ranks : {1, 2, 3}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const Tensor a = leaf(1), b = leaf(1);
        Shards shards(8, &group, {a, b}, schedule);
        std::vector<double> seen;
        register_hook(a, [&](const Tensor& g) {
          seen.push_back(g.item());
          return mul(g, 10.0);
        });
        for (int step = 1; step <= 2; ++step) {
          run_shards(shards, a, b);
          const ShardSums sums = shards.finish();
          EXPECT_EQ(seen, std::vector<double>(static_cast<size_t>(step), 72.0));
          EXPECT_EQ(sums.gradients[0].item(), 720.0);
          EXPECT_EQ(sums.gradients[1].item(), 36.0);
          EXPECT_EQ(sums.squares.value(), 720.0 * 720.0 + 36.0 * 36.0)
              << "of what the hooks have made of the gradients";
        }
      });
    }
  }
}

// finish() leaves the grad of the parameters alone; who wants it, and the hooks after it, accumulates the result.
TEST(ShardHooks, AfterAccumulationRunWhenTheProgramAccumulates) {
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const Tensor a = leaf(1), b = leaf(1);
    Shards shards(8, &group, {a, b});
    int calls = 0;
    register_post_accumulate_grad_hook(a, [&](const Tensor& t) {
      ++calls;
      EXPECT_EQ(grad_of(t).item(), 72.0);
    });
    run_shards(shards, a, b);
    const ShardSums sums = shards.finish();
    EXPECT_EQ(calls, 0);
    EXPECT_FALSE(grad_of(a).defined());
    autograd::accumulate_grad(a, sums.gradients[0]);
    EXPECT_EQ(calls, 1);
  });
}

// A hook of each leaf adds the gradient over the ranks, and notes its turn. Were the orders to differ between ranks,
// the sums would be those of other leaves: both leaves look alike.
void add_over_ranks_in_hooks(const Tensor& first, const Tensor& second,
                             const std::shared_ptr<comm::ProcessGroup>& group, std::vector<int>& turns) {
  register_hook(first, [&turns, group](const Tensor& g) {
    turns.push_back(1);
    return functional::all_reduce(g, comm::ReduceKind::sum, group);
  });
  register_hook(second, [&turns, group](const Tensor& g) {
    turns.push_back(2);
    return functional::all_reduce(g, comm::ReduceKind::sum, group);
  });
}

TEST(CollectivesInHooks, OfTwoLeavesMeetInTheSameOrderOnAllRanks) {
  for (const bool compiled : {false, true}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const double me = group.rank() + 1;
      const Tensor a = leaf(1), b = leaf(1);
      std::vector<int> turns;
      // Which hook is registered first, and which leaf it belongs to, differs between ranks.
      const std::shared_ptr<comm::ProcessGroup> shared = group.shared_from_this();
      if (group.rank() == 0) add_over_ranks_in_hooks(a, b, shared, turns);
      else add_over_ranks_in_hooks(b, a, shared, turns);
      const auto forward = [a, b](const Tensor& x) {
        const Tensor of_a = mul(mul(a, x), 3.0);
        return add(of_a, mul(b, mul(x, 100.0)));
      };
      const auto step = [&](const Tensor& x) {
        set_grad(a, {});
        set_grad(b, {});
        if (compiled) {
          static thread_local const auto f = compile(forward, {.name = "two leaves"});
          backward(f(x));
        } else {
          backward(forward(x));
        }
      };
      for (int i = 0; i < 3; ++i) {
        turns.clear();
        step(Tensor::of<float>({static_cast<float>(me)}));
        EXPECT_EQ(grad_of(a).item(), 9.0);
        EXPECT_EQ(grad_of(b).item(), 300.0);
        // Eager, the leaf whose only use is recorded later is finished first; a compiled call uses both, in the order
        // of its inputs.
        const bool a_is_first = compiled;
        EXPECT_EQ(turns, (group.rank() == 0) == a_is_first ? (std::vector<int>{1, 2}) : (std::vector<int>{2, 1}))
            << "compiled: " << compiled;
      }
    });
  }
}

// The same with the hooks inside of the compiled function, where their collectives are nodes of the graph.
TEST(CollectivesInHooks, OfACompiledBackwardRunEachTime) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    const double me = group.rank() + 1;
    const Tensor a = leaf(1), b = leaf(1);
    std::vector<int> turns;
    add_over_ranks_in_hooks(a, b, group.shared_from_this(), turns);
    const auto gradients = compile(
        [a, b](const Tensor& x) {
          const Tensor of_a = mul(mul(a, x), 3.0), loss = add(of_a, mul(b, mul(x, 100.0)));
          const Tensor outputs[] = {loss}, inputs[] = {a, b};
          const std::vector<Tensor> grads = grad(outputs, inputs);
          return add(grads[0], grads[1]);
        },
        {.name = "gradients"});
    for (int i = 1; i <= 3; ++i) {
      EXPECT_EQ(gradients(Tensor::of<float>({static_cast<float>(me * i)})).item(), 309.0 * i);
    }
  });
}

TEST(ShardHooks, ThatCallCollectivesMeetInTheOrderOfTheParameters) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const Tensor a = leaf(1), b = leaf(1);
      std::vector<int> turns;
      add_over_ranks_in_hooks(a, b, group.shared_from_this(), turns);
      Shards shards(8, &group, {a, b}, schedule);
      run_shards(shards, a, b);
      const ShardSums sums = shards.finish();
      EXPECT_EQ(turns, (std::vector<int>{1, 2}));
      EXPECT_EQ(sums.gradients[0].item(), 144.0);
      EXPECT_EQ(sums.gradients[1].item(), 72.0);
      EXPECT_EQ(sums.squares.value(), 144.0 * 144.0 + 72.0 * 72.0);
    });
  }
}

}  // namespace
}  // namespace tutti::parallel

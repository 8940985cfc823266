// Gradients that move under the backward of a rank's last shard.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <utility>

#include "tests/support/message_of.h"
#include "tutti/autograd/tape.h"
#include "tutti/autograd/use_sink.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/parallel/shards.h"

namespace tutti::parallel {
namespace {

struct LeafSizes {
  int64_t numel;
  int64_t uses;
};
// Several buckets: one parameter that fills more than one, a tied weight, an unused and an empty one.
const std::vector<LeafSizes> kLeaves{{66'000, 1}, {1000, 2},   {300'000, 1}, {7, 0},
                                     {0, 1},      {70'000, 1}, {5, 1},       {90'000, 2}};

std::vector<Tensor> leaves() {
  std::vector<Tensor> list;
  for (const LeafSizes& leaf : kLeaves) list.push_back(zeros({leaf.numel}));
  return list;
}

float value_of(int64_t shard, int64_t use, int64_t i) {
  return std::ldexp(static_cast<float>((shard * 31 + use * 17 + i * 7) % 101 - 50),
                    static_cast<int>((shard + use + i) % 40) - 20);
}

float plain_tree(int64_t begin, int64_t end, int64_t use, int64_t i) {
  if (end - begin == 1) return value_of(begin, use, i);
  const int64_t middle = begin + (end - begin) / 2;
  return plain_tree(begin, middle, use, i) + plain_tree(middle, end, use, i);
}

void expect_sums(const ShardSums& sums, int64_t shards) {
  for (size_t p = 0; p < kLeaves.size(); ++p) {
    ASSERT_EQ(sums.gradients[p].defined(), kLeaves[p].uses > 0);
    for (int64_t i = 0; kLeaves[p].uses > 0 && i < kLeaves[p].numel; i += 97) {
      float expected = plain_tree(0, shards, 0, i);
      if (kLeaves[p].uses == 2) expected += plain_tree(0, shards, 1, i);
      ASSERT_EQ(sums.gradients[p].data<float>()[i], expected) << "parameter " << p << ", element " << i;
    }
  }
}

// As backward does, from the last parameter to the first, until `until` is reached.
void deliver(Shards& shards, int64_t shard, size_t until = 0) {
  for (size_t p = kLeaves.size(); p-- > until;) {
    for (int64_t u = kLeaves[p].uses; u-- > 0;) {
      const Tensor g = Tensor::empty({kLeaves[p].numel});
      for (int64_t i = 0; i < g.numel(); ++i) g.data<float>()[i] = value_of(shard, u, i);
      shards.sink()->use(static_cast<int32_t>(p), 0, g);
    }
    if (kLeaves[p].uses > 0) shards.sink()->finished(static_cast<int32_t>(p));
  }
}

void add(Shards& shards, int64_t shard) {
  deliver(shards, shard);
  shards.add(Tensor::of<float>({1.0f}));
}

ShardSums step_of(Shards& shards) {
  for (const int64_t s : shards.local_shards()) add(shards, s);
  return shards.finish();
}

TEST(Overlap, EveryNumberOfRanksHasTheSameBits) {
  for (const int64_t count : {8, 16}) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Shards shards(count, &group, leaves(), Schedule::once_a_step, Overlap::backward);
        for (int step = 0; step < 3; ++step) {
          const ShardSums sums = step_of(shards);
          expect_sums(sums, count);
          EXPECT_EQ(sums.loss, static_cast<double>(count));
        }
      });
    }
  }
}

TEST(Overlap, BucketsMoveBeforeBackwardHasEnded) {
  for (const int ranks : {2, 3, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      Shards shards(8, &group, leaves(), Schedule::once_a_step, Overlap::backward);
      for (int step = 0; step < 2; ++step) {
        for (const int64_t s : shards.local_shards()) {
          if (s == shards.local_shards().back()) group.barrier();  // which is behind the gate
          add(shards, s);
        }
        expect_sums(shards.finish(), 8);
        EXPECT_GE(shards.early_buckets().early, 2u);
        EXPECT_GT(shards.early_buckets().all, 3u);
      }
    });
  }
}

TEST(Overlap, NeedsTwoShardsARank) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    Shards shards(4, &group, leaves(), Schedule::once_a_step, Overlap::backward);
    expect_sums(step_of(shards), 4);
    EXPECT_EQ(shards.early_buckets().all, 0u);
    EXPECT_EQ(message_of([&] { Shards(4, &group, leaves(), Schedule::every_round, Overlap::backward); }),
              "Shards: gradients that are exchanged every round cannot move under backward; expected the overlap none, "
              "or the schedule once_a_step");
  });
  EXPECT_EQ(message_of([] { parse_overlap("all"); }),
            "'all' is no overlap of the gradient exchange; expected none or backward");
}

// One rank gives up at `where`; the others learn it in their backward or in finish(), and the next step is whole.
void expect_abandoned(int ranks, int quitter, const std::function<void(Shards&)>& until_where) {
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    Shards shards(8, &group, leaves(), Schedule::once_a_step, Overlap::backward);
    for (int step = 0; step < 2; ++step) {
      if (group.rank() == quitter) {
        until_where(shards);
        shards.abandon();
      } else {
        const std::string text = message_of([&] { step_of(shards); });
        EXPECT_NE(text.find(fmt::format("Shards: rank {} has abandoned the step", quitter)), std::string::npos) << text;
        shards.abandon();  // again, which changes nothing
      }
      expect_sums(step_of(shards), 8);
    }
  });
}

TEST(Overlap, ARankThatAbandonsTheStepTellsTheOthers) {
  for (const int ranks : {2, 3, 4}) {
    for (const int quitter : {0, ranks - 1}) {
      // In the first shard, after it, at the beginning of the last one, in the middle of it, and after its backward.
      expect_abandoned(ranks, quitter, [](Shards& shards) { deliver(shards, shards.local_shards()[0], 4); });
      expect_abandoned(ranks, quitter, [](Shards& shards) { add(shards, shards.local_shards()[0]); });
      const auto but_last = [](Shards& shards) {
        for (size_t s = 0; s + 1 < shards.local_shards().size(); ++s) add(shards, shards.local_shards()[s]);
      };
      expect_abandoned(ranks, quitter, but_last);
      expect_abandoned(ranks, quitter, [&](Shards& shards) {
        but_last(shards);
        deliver(shards, shards.local_shards().back(), 3);
      });
      expect_abandoned(ranks, quitter, [&](Shards& shards) {
        but_last(shards);
        add(shards, shards.local_shards().back());
      });
    }
  }
}

// All buckets are on their way when one rank gives up: what the others hear it by is the call that ends the step.
TEST(Overlap, ARankThatAbandonsTheStepWithEverythingSentTellsTheOthers) {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int quitter : {0, ranks - 1}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Shards shards(2 * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ranks))), &group, leaves(),
                      Schedule::once_a_step, Overlap::backward);
        shards.set_reduce_scatter_max_input_buffers(100);
        const auto backward = [&] {
          for (const int64_t s : shards.local_shards()) {
            if (s == shards.local_shards().back())
              group.barrier();  // which is behind the gate: nothing waits from here on
            add(shards, s);
          }
        };
        for (int step = 0; step < 3; ++step) {
          backward();
          if (group.rank() == quitter) {
            shards.abandon();
          } else {
            const std::string text = message_of([&] { shards.finish(); });
            EXPECT_NE(text.find(fmt::format("Shards: rank {} has abandoned the step", quitter)), std::string::npos)
                << text;
            shards.abandon();
          }
          backward();
          expect_sums(shards.finish(), static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ranks))) * 2);
        }
      });
    }
  }
}

// The gradients are added by then, and the others wait in the call that ends the step.
TEST(Overlap, AHookThatThrowsInFinishTellsTheOthers) {
  for (const Overlap overlap : {Overlap::backward, Overlap::none}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      const std::vector<Tensor> parameters = leaves();
      for (const Tensor& parameter : parameters) requires_grad_(parameter);
      bool throws = group.rank() == 1;
      const HookHandle hook = register_hook(parameters[2], [&](const Tensor& gradient) {
        if (std::exchange(throws, false)) throw UsageError("a hook of rank 1 has no use for this gradient");
        return gradient;
      });
      Shards shards(8, &group, parameters, Schedule::once_a_step, overlap);
      const std::string text = message_of([&] { step_of(shards); });
      const char* const expected = group.rank() == 1 ? "a hook of rank 1" : "rank 1";
      EXPECT_NE(text.find(expected), std::string::npos) << text;
      expect_sums(step_of(shards), 8);
    });
  }
}

TEST(Overlap, FinishBeforeAllShardsIsAnErrorOnAllRanks) {
  for (const size_t adds : {0, 1, 2}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      Shards shards(8, &group, leaves(), Schedule::once_a_step, Overlap::backward);
      const std::string text = message_of([&] {
        for (size_t i = 0; i < shards.local_shards().size(); ++i) {
          if (group.rank() != 1 || i < adds) add(shards, shards.local_shards()[i]);
        }
        shards.finish();
      });
      const std::string why = fmt::format("Shards::finish: {} of this rank's 3 shards were added", adds);
      const bool is_told = text.find(why) != std::string::npos;
      EXPECT_TRUE(group.rank() == 1 || adds < 2
                      ? is_told
                      : text.find("Shards: rank 1 has abandoned the step") != std::string::npos)
          << text;
      shards.abandon();  // a rank may have heard it in its backward
      expect_sums(step_of(shards), 8);
    });
  }
}

TEST(Overlap, LayoutsThatDifferAreAnErrorOnAllRanks) {
  comm::run_ranks(3, [](comm::ProcessGroup& group) {
    Shards shards(8, &group, leaves(), Schedule::once_a_step, Overlap::backward);
    const std::string text = message_of([&] {
      for (const int64_t s : shards.local_shards()) {
        if (group.rank() == 2) {  // uses parameter 3, which nobody else does
          shards.sink()->use(3, 0, zeros({7}));
          shards.sink()->finished(3);
        }
        add(shards, s);
      }
      shards.finish();
    });
    EXPECT_NE(text.find("Shards: the uses of parameters on rank 2 are not those on rank 0"), std::string::npos) << text;
    shards.abandon();
    expect_sums(step_of(shards), 8);
  });
}

// set_reduce_scatter_max_input_buffers: while the other rank sends nothing, so many buckets are on their way, and no
// more.
TEST(InputBuffers, AreAsManyAsAllowed) {
  for (const size_t most : {size_t{1}, size_t{2}, size_t{4}}) {
    std::atomic<bool> is_full = false;
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const comm::NodePlan plan = consecutive_shards(2, 2);
      const GradientPlacements placements(1, group.rank(), 2);
      std::vector<GradientNode> nodes{{.shards = {group.rank(), group.rank() + 1}, .uses = {{ones({600'000})}}}};
      StepExchange exchange(group, plan, layout_of(nodes[0].uses), placements, true, most);
      if (group.rank() == 0) {
        size_t started = 0;
        for (; exchange.next() != nullptr && exchange.has_room(); ++started) exchange.start(nodes);
        EXPECT_EQ(started, most);
        EXPECT_FALSE(exchange.left().empty()) << "there are more buckets than buffers";
        is_full = true;
      }
      while (!is_full) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(exchange.finish(nodes)[0].data<float>()[599'999], 2.0F);
    });
  }
}

}  // namespace
}  // namespace tutti::parallel

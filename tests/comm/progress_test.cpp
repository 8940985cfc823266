// Outstanding calls move while their rank computes, at boundaries and by a thread: nobody waits for them or asks about
// them here.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "tests/comm/support/transport_worlds.h"
#include "tests/support/message_of.h"
#include "tutti/comm/progress.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/boundary.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::seconds kSoon{20};
constexpr int64_t kNumel = (6 << 20) / sizeof(float) + 5;  // several rounds on every transport

// Calls `compute` until `work` has ended, or some time has passed. status() looks and moves nothing.
bool ends_under(const Work& work, const std::function<void()>& compute) {
  const auto limit = std::chrono::steady_clock::now() + kSoon;
  while (work.status() == WorkStatus::in_progress && std::chrono::steady_clock::now() < limit) compute();
  return work.status() == WorkStatus::completed;
}

Tensor one_and(int64_t rank) { return add(ones({kNumel}), static_cast<double>(rank)); }

// Two calls one behind the other, of which the second begins when the first has ended.
void expect_to_end_under(ProcessGroup& group, const std::function<void()>& compute) {
  const Tensor sum = one_and(group.rank()), parts = one_and(group.rank());
  const Tensor all = Tensor::empty({group.size() * kNumel});
  const Work first = group.all_reduce(sum, {}, {.async = true});
  const Work second = group.all_gather_single(all, parts, {.async = true});
  EXPECT_TRUE(ends_under(second, compute));
  EXPECT_EQ(first.status(), WorkStatus::completed);
  const int64_t ranks = group.size();
  EXPECT_EQ(sum.data<float>()[kNumel - 1], static_cast<float>(ranks * (ranks + 1) / 2));
  EXPECT_EQ(all.data<float>()[ranks * kNumel - 1], static_cast<float>(ranks));
  group.barrier();  // peers may still need this rank
}

class Progress : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Progress, testing::ValuesIn(world_transports()),
                         [](const auto& tested) { return tested.param; });

TEST_P(Progress, UnderEagerOps) {
  run_over(GetParam(), 3, [](ProcessGroup& group) {
    const Tensor x = ones({1000});
    expect_to_end_under(group, [&] { add(x, x); });
  });
}

TEST_P(Progress, UnderStepsOfACompiledFunction) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const Compiled fn = compile([](const std::vector<Tensor>& in) { return std::vector<Tensor>{add(in[0], in[0])}; });
    const std::vector<Tensor> x{ones({1000})};
    fn(x);
    expect_to_end_under(group, [&] { fn(x); });
  });
}

TEST_P(Progress, BetweenTheChunksOfAParallelLoop) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    RankContext::current().set_threads(2);
    const auto me = std::this_thread::get_id();
    expect_to_end_under(group, [&] {
      ThreadPool::current().parallel_for(8, 1, [&](int64_t, int64_t) {
        // Workers leave most chunks to the caller, which alone attends to its rank.
        std::this_thread::sleep_for(std::chrono::microseconds(std::this_thread::get_id() == me ? 10 : 2000));
      });
    });
  });
}

TEST_P(Progress, ByAThreadWhileTheRankDoesNothing) {
  run_over(GetParam(), 3, [](ProcessGroup& group) {
    const ProgressThread thread;
    expect_to_end_under(group, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  });
}

TEST_P(Progress, MessagesMoveToo) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const Tensor mine = one_and(group.rank()), theirs = Tensor::empty({kNumel});
    const int peer = 1 - group.rank();
    const Work sent = group.isend(mine, peer), received = group.irecv(theirs, peer);
    const Tensor x = ones({1000});
    EXPECT_TRUE(ends_under(received, [&] { add(x, x); }));
    EXPECT_TRUE(ends_under(sent, [&] { add(x, x); }));
    EXPECT_EQ(theirs.data<float>()[kNumel - 1], static_cast<float>(1 + peer));
    group.barrier();
  });
}

// A rank that computes notices that a call is late, and says so to whoever waits for it.
TEST_P(Progress, ALateCallEndsUnderOpsAndFailsInItsWait) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
      return;
    }
    const Tensor sum = one_and(0), x = ones({1000});
    const Work work = group.all_reduce(sum, {}, {.async = true, .timeout = std::chrono::milliseconds(100)});
    EXPECT_FALSE(ends_under(work, [&] { add(x, x); }));
    EXPECT_THROW(work.wait(), TimeoutError);
  });
}

// An op must not end with the error of somebody's callback, nor the thread the program.
TEST_P(Progress, WhatACallbackThrowsComesOutOfTheNextCall) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const Tensor x = ones({1000});
    for (const bool by_thread : {false, true}) {
      std::optional<ProgressThread> thread;
      if (by_thread) thread.emplace();
      int other = 0;
      const Tensor sum = one_and(group.rank());
      const Work work = group.all_reduce(sum, {}, {.async = true});
      work.then([] { throw UsageError("thrown by a callback"); });
      work.then([&] { ++other; });
      EXPECT_TRUE(ends_under(work, [&] {
        if (by_thread) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        else add(x, x);
      }));
      thread.reset();
      EXPECT_EQ(message_of([&] { group.barrier(); }), "thrown by a callback");
      EXPECT_EQ(other, 1);
      group.barrier();
    }
  });
}

TEST_P(Progress, NothingWantsAttentionAfterTheLastCall) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    for (const bool drop : {false, true}) {
      const Tensor sum = one_and(group.rank());
      Work work = group.all_reduce(sum, {}, {.async = true});
      if (drop) work = {};
      group.barrier();
    }
    // Ranks that are threads share the count.
    const auto limit = std::chrono::steady_clock::now() + kSoon;
    while (Boundary::is_wanted() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(Boundary::is_wanted());
    group.barrier();
  });
}

}  // namespace
}  // namespace tutti::comm

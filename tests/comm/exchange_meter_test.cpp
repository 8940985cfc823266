// The time in calls between ranks (runtime/trace/exchange_meter.h): of every collective and message, of waits for those
// that run on, and of waits in symmetric memory.
#include "tutti/runtime/trace/exchange_meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/comm/support/sample_calls.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLate{15};

// How long rank 0 is in the call when rank 1 makes it that much later, and how long rank 1 is.
struct InCall {
  std::chrono::nanoseconds early{}, late{};
};

InCall time_of_one(const std::function<std::function<void()>(ProcessGroup&)>& prepare) {
  InCall times;
  run_ranks(2, [&](ProcessGroup& group) {
    const std::function<void()> call = prepare(group);
    group.barrier();
    if (group.rank() == 1) std::this_thread::sleep_for(kLate);
    const ExchangeMeter meter;
    call();
    (group.rank() == 0 ? times.early : times.late) = meter.total();
  });
  return times;
}

// Measures calls in which rank 0 waits for at least `least`. On a busy machine it may come to its call later than rank
// 1: such calls are made again.
InCall time_of(const std::function<std::function<void()>(ProcessGroup&)>& prepare,
               std::chrono::nanoseconds least = kLate * 4 / 5) {
  InCall times = time_of_one(prepare);
  for (int again = 0; again < 20 && (times.early < least || times.late > times.early); ++again)
    times = time_of_one(prepare);
  return times;
}

TEST(ExchangeMeter, CountsEveryCollectiveAndMessageWithItsWaits) {
  int waits = 0;
  for (const CollectiveKind kind : all_kinds()) {
    const std::string name(name_of(kind));
    const bool needs_the_other =
        name.starts_with("all_") || name.starts_with("reduce_scatter") || name.ends_with("barrier");
    const auto prepare = [&](ProcessGroup& group) {
      return [call = std::make_shared<SampleCall>(sample_call(group, kind))] { call->make(); };
    };
    const InCall times = needs_the_other ? time_of(prepare) : time_of_one(prepare);
    EXPECT_GT(times.early.count(), 0) << name;
    EXPECT_GT(times.late.count(), 0) << name;
    if (!needs_the_other) continue;
    ++waits;
    EXPECT_GE(times.early, kLate * 4 / 5) << name;
  }
  EXPECT_GE(waits, 6);
}

TEST(ExchangeMeter, CountsWaitsForCallsThatRunOnButNotTheTimeBetween) {
  const InCall times = time_of(
      [](ProcessGroup& group) {
        return [&group, x = ones({8})] {
          const Work work = group.all_reduce(x, {}, {.async = true});
          std::this_thread::sleep_for(kLate / 3);
          work.wait();
        };
      },
      kLate / 2);
  EXPECT_GE(times.early, kLate / 2);
  EXPECT_LT(times.early, kLate * 20);
  EXPECT_LT(times.late, times.early);
}

TEST(ExchangeMeter, CountsWaitsInSymmetricMemory) {
  const InCall times = time_of([](ProcessGroup& group) {
    const Tensor own = symm::empty_symm({16}, DType::f32, kCpu, {.group = symm_group(group)});
    return [own, handle = symm::rendezvous(own, symm_group(group))] { handle->barrier(); };
  });
  EXPECT_GE(times.early, kLate * 4 / 5);
  EXPECT_LT(times.late, times.early);
}

TEST(ExchangeMeter, CountsCallsInsideOfCallsOnceAndNestedMetersAlike) {
  const ExchangeMeter outer(true);
  {
    const ExchangeMeter inner;
    {
      const ExchangeSpan call;
      const ExchangeSpan inside;
      std::this_thread::sleep_for(milliseconds(2));
    }
    EXPECT_EQ(inner.total(), outer.total());
    EXPECT_GE(inner.total(), milliseconds(2));
    EXPECT_TRUE(inner.spans().empty());
  }
  {
    const ExchangeSpan call;
  }
  ASSERT_EQ(outer.spans().size(), 2U);
  EXPECT_LE(outer.spans()[0].second, outer.spans()[1].first);
  EXPECT_EQ(outer.spans()[0].second - outer.spans()[0].first + outer.spans()[1].second - outer.spans()[1].first,
            outer.total().count());
  std::thread([&] { const ExchangeSpan call; }).join();
  EXPECT_EQ(outer.spans().size(), 2U) << "another thread's call";
  {
    const ExchangeSpan call;
    const ExchangeMeter inside;
    {
      const ExchangeSpan part;
    }
    EXPECT_GT(inside.total().count(), 0);
  }
  ASSERT_EQ(outer.spans().size(), 3U) << "a meter that was made in a call";
}

}  // namespace
}  // namespace tutti::comm

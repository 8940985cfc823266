#include "tutti/train/step/step_timeline_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/runtime/trace/exchange_meter.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::train {
namespace {

void work(const char* name, int ms) {
  const TraceSpan span(TraceCategory::annotation, name);
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

void step(int rank) {
  const TraceSpan span(TraceCategory::annotation, "step 1");
  work("virtual shard", 4);
  work("something else", 0);
  if (rank == 1) work("FSDP::post_backward_rs_wait", 8);
}

TEST(StepTimeline, IsOfTheSecondStepOfAllRanks) {
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    StepTimelineRecorder recorder(true, &group);
    for (int64_t s = 1; s <= 4; ++s) {
      recorder.before_step();
      step(group.rank());
      const std::optional<StepTimeline> timeline = recorder.after_step(s);
      TUTTI_CHECK(timeline.has_value() == (s == 2), "step {}", s);
      if (!timeline) continue;
      TUTTI_CHECK(timeline->step == 2 && timeline->ranks == 3 && timeline->spans.size() == 4 && timeline->dropped == 0,
                  "{} spans", timeline->spans.size());
      const StepSpan& first = timeline->spans[0];
      const StepSpan& wait = timeline->spans[2];
      TUTTI_CHECK(first.rank == 0 && first.kind == StepSpanKind::forward_backward && first.begin_ms >= 0 &&
                      first.end_ms - first.begin_ms >= 4,
                  "from {} to {}", first.begin_ms, first.end_ms);
      TUTTI_CHECK(wait.rank == 1 && wait.kind == StepSpanKind::wait && wait.end_ms - wait.begin_ms >= 8 &&
                      wait.begin_ms >= timeline->spans[1].end_ms,
                  "from {} to {}", wait.begin_ms, wait.end_ms);
    }
  });
}

// Calls between ranks, but for those that an unshard or a wait is made of.
TEST(StepTimeline, HasTheCallsBetweenRanksThatNoOtherSpanIsMadeOf) {
  StepTimelineRecorder alone(true, nullptr);
  const auto call = [] {
    const ExchangeSpan span;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  for (int64_t s = 1; s <= 2; ++s) {
    alone.before_step();
    {
      const TraceSpan span(TraceCategory::annotation, "virtual shard");
      call();
    }
    {
      const TraceSpan span(TraceCategory::annotation, "FSDP::wait_for_readers");
      call();
    }
    call();
    const auto timeline = alone.after_step(s);
    if (s == 1) continue;
    ASSERT_TRUE(timeline.has_value());
    ASSERT_EQ(timeline->spans.size(), 4U);
    for (const size_t i : {2U, 3U}) {
      EXPECT_EQ(timeline->spans[i].kind, StepSpanKind::exchange);
      EXPECT_GE(timeline->spans[i].end_ms - timeline->spans[i].begin_ms, 2);
    }
    EXPECT_LE(timeline->spans[2].end_ms, timeline->spans[1].begin_ms) << "the call in the shard, before the wait";
    EXPECT_GE(timeline->spans[3].begin_ms, timeline->spans[1].end_ms);
  }
}

TEST(StepTimeline, IsNotRecordedUnasked) {
  StepTimelineRecorder off(false, nullptr), alone(true, nullptr);
  for (int64_t s = 1; s <= 3; ++s) {
    off.before_step();
    alone.before_step();
    step(0);
    EXPECT_FALSE(off.after_step(s).has_value());
    EXPECT_EQ(alone.after_step(s).has_value(), s == 2);
  }
}

TEST(StepTimeline, ManySpansLeaveTheLongest) {
  StepTimelineRecorder alone(true, nullptr);
  for (int64_t s = 1; s <= 2; ++s) {
    alone.before_step();
    for (int i = 0; i < 300; ++i) work("FSDP::publish", 0);
    work("reduce gradients", 5);
    if (const auto timeline = alone.after_step(s)) {
      EXPECT_EQ(timeline->spans.size(), 256U);
      EXPECT_EQ(timeline->spans[0].kind, StepSpanKind::reduce);
      EXPECT_EQ(timeline->dropped, 45);
    }
  }
}

}  // namespace
}  // namespace tutti::train

// Events of collectives and messages.
#include "tutti/comm/call_trace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/comm/run_ranks.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti::comm {
namespace {

// The collective events of each rank while all run `body`.
template <class Body>
std::vector<std::vector<TraceEvent>> collectives_of(int ranks, Body body) {
  std::vector<std::vector<TraceEvent>> events(static_cast<size_t>(ranks));
  Profiler profiler;
  EXPECT_TRUE(profiler.start().ok());
  run_ranks(ranks, body);
  profiler.stop();
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& e = (*thread.log)[i];
      if (e.category == TraceCategory::collective) events.at(static_cast<size_t>(e.rank)).push_back(e);
    }
  }
  return events;
}

const TraceEvent* find(const std::vector<TraceEvent>& events, const std::string& name) {
  for (const TraceEvent& e : events) {
    if (name == e.name) return &e;
  }
  return nullptr;
}

TEST(CallTrace, ACollectiveSaysWhatItMovesAndWithWhom) {
  const auto events = collectives_of(2, [](ProcessGroup& group) {
    const PhaseScope phase(TracePhase::backward);
    const ModuleScope module("gradients");
    group.all_reduce(ones({6}));
    const Tensor all = zeros({8});
    group.all_gather_single(all, ones({4}));
    const Tensor part = zeros({3}), whole = ones({6});
    group.reduce_scatter_single(part, whole);
  });
  for (const std::vector<TraceEvent>& own : events) {
    const TraceEvent* all_reduce = find(own, "all_reduce");
    ASSERT_NE(all_reduce, nullptr);
    EXPECT_EQ(all_reduce->group->ranks, (std::vector<int>{0, 1}));
    EXPECT_STREQ(all_reduce->text, "f32");
    EXPECT_EQ(all_reduce->values[0], 6);
    EXPECT_EQ(all_reduce->values[1], 6);
    EXPECT_GT(all_reduce->values[2], 0);
    EXPECT_EQ(all_reduce->bytes, 48);
    EXPECT_EQ(all_reduce->flops, 6);
    EXPECT_EQ(all_reduce->context.phase, TracePhase::backward);
    ASSERT_NE(all_reduce->context.place, nullptr);
    EXPECT_EQ(all_reduce->context.place->module_path, "gradients");
    EXPECT_EQ(all_reduce->kernel->info.ops.at(0).name, "all_reduce");
    EXPECT_FALSE(all_reduce->kernel->info.choice.empty());
    EXPECT_LE(all_reduce->begin_ns, all_reduce->end_ns);
    const TraceEvent *gather = find(own, "all_gather_single"), *scatter = find(own, "reduce_scatter_single");
    ASSERT_TRUE(gather && scatter);
    EXPECT_EQ(gather->values[0], 4);
    EXPECT_EQ(gather->values[1], 8);
    EXPECT_EQ(scatter->values[0], 6);
    EXPECT_EQ(scatter->values[1], 3);
  }
  EXPECT_EQ(find(events[0], "all_reduce")->values[2], find(events[1], "all_reduce")->values[2]);
}

TEST(CallTrace, CallsThatWaitInTheQueueDoNotOverlap) {
  const auto events = collectives_of(2, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i)
      works.push_back(group.all_reduce(tensors.emplace_back(ones({1000})), {}, {.async = true}));
    for (Work& work : works) work.wait();
  });
  for (const std::vector<TraceEvent>& own : events) {
    int64_t last_end = 0, seen = 0;
    for (const TraceEvent& e : own) {
      if (std::string("all_reduce") != e.name) continue;
      EXPECT_LE(last_end, e.begin_ns);
      last_end = e.end_ns;
      ++seen;
    }
    EXPECT_EQ(seen, 5);
  }
}

TEST(CallTrace, AMessageSaysItsPeerAndHasNoNumber) {
  const auto events = collectives_of(2, [](ProcessGroup& group) {
    const Tensor t = ones({7});
    if (group.rank() == 0) group.send(t, 1);
    else group.recv(t, 0);
  });
  const TraceEvent *send = find(events[0], "send"), *recv = find(events[1], "recv");
  ASSERT_TRUE(send && recv);
  EXPECT_EQ(send->values[3], 1);
  EXPECT_EQ(recv->values[3], 0);
  EXPECT_EQ(send->values[0], 7);
  EXPECT_EQ(recv->values[1], 7);
  EXPECT_EQ(send->values[2], 0);
}

TEST(CallTrace, AFailedCallSaysSo) {
  const auto events = collectives_of(2, [](ProcessGroup& group) {
    const Tensor t = group.rank() == 0 ? ones({3}) : ones({4});
    EXPECT_THROW(group.all_reduce(t), UsageError);
  });
  EXPECT_NE(find(events[0], "all_reduce (failed)"), nullptr);
  EXPECT_NE(find(events[1], "all_reduce (failed)"), nullptr);
}

}  // namespace
}  // namespace tutti::comm

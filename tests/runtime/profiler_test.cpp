#include "tutti/runtime/trace/profiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti {
namespace {

void span(const char* name) { const TraceSpan one(TraceCategory::annotation, name); }

std::vector<std::string> names_of(const Trace& trace) {
  std::vector<std::string> names;
  for (const TraceHarvest::Thread& thread : trace.threads) {
    for (int64_t i = 0; i < thread.size; ++i) names.emplace_back((*thread.log)[i].name);
  }
  return names;
}

int64_t count(const Trace& trace, const std::string& name) {
  const std::vector<std::string> names = names_of(trace);
  return std::count(names.begin(), names.end(), name);
}

using Names = std::vector<std::string>;
using Kind = ProfilerStatus::Kind;

TEST(Profiler, KeepsWhatHappensBetweenStartAndStop) {
  Profiler profiler;
  span("before");
  ASSERT_TRUE(profiler.start().ok());
  span("inside");
  trace_mark("moment");
  ASSERT_TRUE(profiler.stop().ok());
  span("after");
  EXPECT_EQ(names_of(profiler.trace()), (Names{"inside", "moment"}));
}

TEST(Profiler, SessionsNest) {
  Profiler outer, inner;
  ASSERT_TRUE(outer.start().ok());
  span("first");
  ASSERT_TRUE(inner.start().ok());
  span("second");
  ASSERT_TRUE(inner.stop().ok());
  span("third");
  ASSERT_TRUE(outer.stop().ok());
  EXPECT_EQ(names_of(outer.trace()), (Names{"first", "second", "third"}));
  EXPECT_EQ(names_of(inner.trace()), (Names{"second"}));
}

TEST(Profiler, SessionsOverlap) {
  Profiler a, b;
  ASSERT_TRUE(a.start({.name = "a"}).ok());
  span("a only");
  ASSERT_TRUE(b.start({.name = "b"}).ok());
  span("both");
  ASSERT_TRUE(a.stop().ok());
  span("b only");
  ASSERT_TRUE(b.stop().ok());
  EXPECT_EQ(names_of(a.trace()), (Names{"a only", "both"}));
  EXPECT_EQ(names_of(b.trace()), (Names{"both", "b only"}));
  EXPECT_EQ(a.trace().other_sessions, (Names{"b"}));
}

TEST(Profiler, ASessionStartedInsideASpanDoesNotHaveIt) {
  Profiler outer, inner;
  ASSERT_TRUE(outer.start().ok());
  {
    const TraceSpan around(TraceCategory::annotation, "around");
    ASSERT_TRUE(inner.start().ok());
    span("inside");
  }
  inner.stop();
  outer.stop();
  EXPECT_EQ(names_of(outer.trace()), (Names{"inside", "around"}));
  EXPECT_EQ(names_of(inner.trace()), (Names{"inside"}));
}

TEST(Profiler, CollectsFromSeveralThreadsAndIsStoppedByAnother) {
  constexpr int kThreads = 4, kSpans = 300;
  Profiler profiler;
  ASSERT_TRUE(profiler.start().ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kSpans; ++i) span("work");
    });
  }
  for (std::thread& thread : threads) thread.join();
  ProfilerStatus status;
  std::thread([&] { status = profiler.stop(); }).join();
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(count(profiler.trace(), "work"), kThreads * kSpans);
  EXPECT_EQ(profiler.trace().threads.size(), size_t{kThreads});
}

TEST(Profiler, StoppingWhileThreadsRecordLosesNothingAcknowledged) {
  std::atomic<bool> end{false};
  std::latch running(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      running.arrive_and_wait();
      while (!end) span("work");
    });
  }
  running.arrive_and_wait();
  for (int i = 0; i < 50; ++i) {
    Profiler profiler, other;
    ASSERT_TRUE(profiler.start().ok());
    ASSERT_TRUE(other.start({.events_per_thread = 100}).ok());
    span("mine");
    ASSERT_TRUE(profiler.stop().ok());
    ASSERT_TRUE(other.stop().ok());
    EXPECT_EQ(count(profiler.trace(), "mine"), 1);
    EXPECT_EQ(count(other.trace(), "mine"), 1);
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(Profiler, IsBoundedAndCountsWhatItDrops) {
  Profiler small, large;
  ASSERT_TRUE(small.start({.events_per_thread = 5}).ok());
  ASSERT_TRUE(large.start({.events_per_thread = 1000}).ok());
  for (int i = 0; i < 600; ++i) span("work");
  small.stop();
  large.stop();
  EXPECT_EQ(small.trace().event_count(), 5);
  EXPECT_EQ(small.trace().dropped, 595);
  EXPECT_EQ(large.trace().event_count(), 600);
  EXPECT_EQ(large.trace().dropped, 0);
}

TEST(Profiler, ASecondStartIsBusyAndChangesNothing) {
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.name = "first"}).ok());
  const ProfilerStatus second = profiler.start({.name = "second"});
  EXPECT_EQ(second.kind, Kind::busy);
  EXPECT_EQ(second.message, "profiler: busy with the session 'first'; stop() it, or use another Profiler");
  span("work");
  EXPECT_TRUE(profiler.stop().ok());
  EXPECT_EQ(profiler.trace().name, "first");
  EXPECT_EQ(profiler.trace().event_count(), 1);
}

TEST(Profiler, TwoSessionsDoNotWriteToOneFile) {
  testing::TemporaryFolder folder;
  Profiler a, b;
  ASSERT_TRUE(a.start({.name = "a", .path = folder / "trace.json"}).ok());
  const ProfilerStatus busy = b.start({.name = "b", .path = folder / "./trace.json"});
  EXPECT_EQ(busy.kind, Kind::busy);
  EXPECT_EQ(busy.message,
            "profiler: busy with the session 'a', which writes to the same file " + (folder / "trace.json"));
  EXPECT_FALSE(b.is_running());
  ASSERT_TRUE(a.stop().ok());
  ASSERT_TRUE(b.start({.name = "b", .path = folder / "trace.json"}).ok());
}

TEST(Profiler, SaysWhenThereAreTooManySessions) {
  std::vector<Profiler> profilers(TraceRecorder::kMaxSessions);
  for (size_t i = 0; i < profilers.size(); ++i)
    ASSERT_TRUE(profilers[i].start({.name = "number " + std::to_string(i)}).ok());
  Profiler one_more;
  const ProfilerStatus busy = one_more.start();
  EXPECT_EQ(busy.kind, Kind::busy);
  EXPECT_EQ(busy.message, "profiler: busy with 16 sessions, the most there may be; the oldest is 'number 0'");
}

TEST(Profiler, StopWithoutStartIsAStatus) {
  Profiler profiler;
  EXPECT_EQ(profiler.stop().kind, Kind::not_running);
  ASSERT_TRUE(profiler.start().ok());
  EXPECT_TRUE(profiler.stop().ok());
  EXPECT_EQ(profiler.stop().kind, Kind::not_running);
}

TEST(Profiler, AFileThatCannotBeWrittenIsAStatusAndTheTraceIsKept) {
  testing::TemporaryFolder folder;
  const std::string in_the_way = folder.write("file", "");
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.path = in_the_way + "/trace.json"}).ok());
  span("work");
  const ProfilerStatus status = profiler.stop();
  EXPECT_EQ(status.kind, Kind::failed);
  EXPECT_NE(status.message.find("the trace was not written: cannot"), std::string::npos) << status.message;
  EXPECT_NE(status.message.find(in_the_way), std::string::npos) << status.message;
  EXPECT_EQ(count(profiler.trace(), "work"), 1);
}

TEST(Profiler, AnExceptionClosesItsSpans) {
  Profiler profiler;
  ASSERT_TRUE(profiler.start().ok());
  try {
    const TraceSpan outer(TraceCategory::annotation, "outer");
    const TraceSpan inner(TraceCategory::annotation, "inner");
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  profiler.stop();
  EXPECT_EQ(names_of(profiler.trace()), (Names{"inner", "outer"}));
}

TEST(Profiler, OneThreadWithItsPoolTasksCanBeWatched) {
  RankContext context({.threads = 3});
  const RankContext::Scope scope(context);
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.filter = TraceFilter::this_thread}).ok());
  std::thread([&] {
    const RankContext::Scope same(context);
    span("elsewhere");
    ThreadPool::current().parallel_for(8, 1, [](int64_t, int64_t) { span("other's task"); });
  }).join();
  int64_t tasks = 0;
  std::mutex mutex;
  ThreadPool::current().parallel_for(64, 1, [&](int64_t, int64_t) {
    span("task");
    const std::lock_guard lock(mutex);
    ++tasks;
  });
  profiler.stop();
  EXPECT_EQ(count(profiler.trace(), "elsewhere"), 0);
  EXPECT_EQ(count(profiler.trace(), "other's task"), 0);
  EXPECT_EQ(count(profiler.trace(), "task"), tasks);
}

TEST(Profiler, OneRankOfSeveralInAProcessCanBeWatched) {
  RankContext zero({.rank = 0, .world_size = 2}), one({.rank = 1, .world_size = 2});
  const RankContext::Scope scope(one);
  Profiler own, all;
  ASSERT_TRUE(own.start({.filter = TraceFilter::this_rank}).ok());
  ASSERT_TRUE(all.start().ok());
  std::thread([&] {
    const RankContext::Scope other(zero);
    span("zero");
  }).join();
  std::thread([&] {
    const RankContext::Scope same(one);
    span("one");
  }).join();
  own.stop();
  all.stop();
  EXPECT_EQ(names_of(own.trace()), (Names{"one"}));
  EXPECT_EQ(all.trace().event_count(), 2);
  EXPECT_EQ((*own.trace().threads.at(0).log)[0].rank, 1);
}

TEST(Profiler, MemoryEventsTellEveryAllocation) {
  RankContext context({});
  const RankContext::Scope scope(context);
  Profiler with, without;
  ASSERT_TRUE(with.start().ok());
  ASSERT_TRUE(without.start({.memory = false}).ok());
  void* block = context.allocator().allocate(1000, MemoryCategory::gradients);
  context.allocator().deallocate(block, 1000, MemoryCategory::gradients);
  with.stop();
  without.stop();
  ASSERT_EQ(with.trace().event_count(), 2);
  const TraceLog& log = *with.trace().threads.at(0).log;
  EXPECT_EQ(log[0].values[0], static_cast<int64_t>(reinterpret_cast<uintptr_t>(block)));
  EXPECT_GE(log[0].values[1], 1000);
  EXPECT_EQ(log[0].values[2], log[0].values[1]);
  EXPECT_EQ(log[1].values[1], -log[0].values[1]);
  EXPECT_EQ(log[1].values[2], 0);
  EXPECT_STREQ(log[0].text, "gradients");
  EXPECT_EQ(without.trace().event_count(), 0);
}

TEST(Profiler, EventsSayPhaseModuleAndSourceLine) {
  Profiler profiler;
  ASSERT_TRUE(profiler.start().ok());
  {
    const ModuleScope model("model");
    const ModuleScope layer("layers", 3);
    const PhaseScope phase(TracePhase::backward);
    span("work");
  }
  span("outside");
  profiler.stop();
  const TraceLog& log = *profiler.trace().threads.at(0).log;
  ASSERT_NE(log[0].context.place, nullptr);
  EXPECT_EQ(log[0].context.place->module_path, "model.layers.3");
  ASSERT_EQ(log[0].context.place->stack.size(), 2u);
  EXPECT_TRUE(log[0].context.place->stack[0].starts_with("tests/runtime/profiler_test.cpp:"))
      << log[0].context.place->stack[0];
  EXPECT_NE(log[0].context.place->stack[0].find("(TestBody)"), std::string::npos) << log[0].context.place->stack[0];
  EXPECT_EQ(log[0].context.phase, TracePhase::backward);
  EXPECT_EQ(log[1].context.place, nullptr);
  EXPECT_EQ(log[1].context.phase, TracePhase::forward);
}

TEST(Profiler, AThreadThatRecordsNoMoreHoldsNoLog) {
  Profiler profiler;
  std::latch recorded(2), stopped(2);
  ASSERT_TRUE(profiler.start().ok());
  std::thread thread([&] {
    span("work");
    recorded.arrive_and_wait();
    stopped.arrive_and_wait();
  });
  recorded.arrive_and_wait();
  profiler.stop();
  {
    const Trace trace = profiler.trace();
    ASSERT_EQ(trace.threads.size(), 1u);
    EXPECT_EQ(trace.threads[0].log.use_count(), 2);  // of the profiler, and of this copy
  }
  stopped.arrive_and_wait();
  thread.join();
}

TEST(KernelInfo, EqualFactsAreOneKernelAndItsCallsAreNumbered) {
  const KernelInfo info{.kernel_id = "add_mul_1", .graph_key = "g1", .ops = {{"add", 3}, {"mul", 4}}};
  const TraceKernel& kernel = intern_kernel(info);
  EXPECT_EQ(&kernel, &intern_kernel(info));
  KernelInfo elsewhere = info;
  elsewhere.graph_key = "g2";
  EXPECT_NE(&kernel, &intern_kernel(elsewhere));
  Profiler profiler;
  ASSERT_TRUE(profiler.start().ok());
  for (int i = 0; i < 3; ++i) const TraceSpan call(TraceCategory::kernel, kernel, {.bytes = 8});
  profiler.stop();
  const TraceLog& log = *profiler.trace().threads.at(0).log;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(log[i].call, i);
}

}  // namespace
}  // namespace tutti

#include "tutti/diagnose/flight_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {
namespace {

using testing::TemporaryFolder;

CallRecord all_reduce(int64_t sequence, int64_t n = 1024) {
  CallRecord record{.kind = CollectiveKind::all_reduce, .sequence = sequence};
  record.describe_tensor(DType::f32, {n});
  return record;
}

CallRecord recv(int64_t sequence, int peer, uint32_t tag) {
  CallRecord record{.kind = CollectiveKind::recv, .root = peer, .tag = tag, .sequence = sequence};
  record.describe_tensor(DType::i64, {3});
  return record;
}

int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST(FlightRecorder, KeepsACallWithItsTimesStateAndSizes) {
  const int64_t before = wall_ns();
  FlightRecorder recorder({.rank = 3, .world_size = 4});
  FlightGroup& group = recorder.add_group("dp", "data parallel", {0, 1, 2, 3});
  group.timeout_ms = 600'000;
  const uint64_t id = recorder.enqueue(group, all_reduce(7), 4096, 4096);
  recorder.started(id);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  recorder.ended(id, FlightState::completed);
  const FlightDump dump = recorder.snapshot("a test");
  const int64_t after = wall_ns();

  EXPECT_EQ(dump.rank, 3);
  EXPECT_EQ(dump.world_size, 4);
  EXPECT_EQ(dump.reason, "a test");
  ASSERT_EQ(dump.entries.size(), 1u);
  const FlightEntry& e = dump.entries[0];
  EXPECT_EQ(e.record_id, 0);
  EXPECT_EQ(e.group, "dp");
  EXPECT_EQ(e.sequence, 7);
  EXPECT_EQ(e.call, "all_reduce(f32 [1024], sum)");
  EXPECT_EQ(e.reduce_op, "sum");
  EXPECT_EQ(e.input_sizes, (std::vector<std::vector<int64_t>>{{1024}}));
  EXPECT_EQ(e.timeout_ms, 600'000);
  EXPECT_EQ(e.state, FlightState::completed);
  EXPECT_EQ(e.thread_id, gettid());
  EXPECT_FALSE(e.thread_name.empty());
  // The clocks agree to far less than a millisecond.
  EXPECT_GE(e.created_ns, before - 1'000'000);
  EXPECT_LE(e.created_ns, e.started_ns);
  EXPECT_GE(e.ended_ns - e.started_ns, 19'000'000);
  EXPECT_LE(e.ended_ns, after + 1'000'000);
}

TEST(FlightRecorder, AnOutputOfAnotherSizeIsItsNumberOfElements) {
  FlightRecorder recorder({.rank = 0, .world_size = 4});
  FlightGroup& group = recorder.add_group("dp", "", {0, 1, 2, 3});
  CallRecord record{.kind = CollectiveKind::all_gather_single, .sequence = 1};
  record.describe_tensor(DType::bf16, {2, 3});
  recorder.begin(group, record, 12, 48);
  const FlightDump dump = recorder.snapshot("");
  EXPECT_EQ(dump.entries[0].input_sizes, (std::vector<std::vector<int64_t>>{{2, 3}}));
  EXPECT_EQ(dump.entries[0].output_sizes, (std::vector<std::vector<int64_t>>{{24}}));
  EXPECT_EQ(dump.groups[0].enqueued.numel_out, 24);
}

TEST(FlightRecorder, ACallThatEndsAtOnceHasNoDuration) {
  FlightRecorder recorder({.rank = 0, .world_size = 1});
  FlightGroup& group = recorder.add_group("g", "", {0});
  const uint64_t id = recorder.begin(group, all_reduce(1), 8, 8);
  recorder.ended(id, FlightState::completed, false);
  const FlightEntry e = recorder.snapshot("").entries[0];
  EXPECT_EQ(e.created_ns, e.started_ns);
  EXPECT_EQ(e.started_ns, e.ended_ns);
}

TEST(FlightRecorder, KeepsTheLastCallsAndIgnoresTheEndOfForgottenOnes) {
  FlightRecorder recorder({.entries = 5, .rank = 0, .world_size = 1});
  FlightGroup& group = recorder.add_group("g", "", {0});
  const uint64_t first = recorder.begin(group, all_reduce(1), 8, 8);
  for (int64_t s = 2; s <= 20; ++s) recorder.begin(group, all_reduce(s), 8, 8);
  recorder.ended(first, FlightState::failed);
  const FlightDump dump = recorder.snapshot("");
  ASSERT_EQ(dump.entries.size(), 5u);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(dump.entries[static_cast<size_t>(i)].sequence, 16 + i);
    EXPECT_EQ(dump.entries[static_cast<size_t>(i)].state, FlightState::started);
  }
}

TEST(FlightRecorder, StatusOutlivesTheRing) {
  FlightRecorder recorder({.entries = 2, .rank = 0, .world_size = 2});
  FlightGroup& quiet = recorder.add_group("quiet", "", {0, 1});
  FlightGroup& busy = recorder.add_group("busy", "", {0, 1});
  recorder.ended(recorder.begin(quiet, all_reduce(41), 4096, 4096), FlightState::completed);
  recorder.begin(quiet, all_reduce(42), 4096, 4096);
  for (int64_t s = 1; s <= 9; ++s) recorder.enqueue(busy, all_reduce(s), 4, 4);
  const FlightDump dump = recorder.snapshot("");
  EXPECT_EQ(dump.groups[0].enqueued.sequence, 42);
  EXPECT_EQ(dump.groups[0].started.sequence, 42);
  EXPECT_EQ(dump.groups[0].completed.sequence, 41);
  EXPECT_EQ(dump.groups[0].completed.name, "all_reduce");
  EXPECT_EQ(dump.groups[0].completed.numel_in, 1024);
  EXPECT_EQ(dump.groups[1].enqueued.sequence, 9);
  EXPECT_EQ(dump.groups[1].started.sequence, -1);
}

TEST(FlightRecorder, MessagesDoNotCountAsCollectives) {
  FlightRecorder recorder({.rank = 0, .world_size = 2});
  FlightGroup& group = recorder.add_group("g", "", {0, 1});
  recorder.begin(group, recv(12, 1, 5), 0, 24);
  const FlightDump dump = recorder.snapshot("");
  EXPECT_TRUE(dump.entries[0].is_p2p);
  EXPECT_EQ(dump.entries[0].root, 1);
  EXPECT_EQ(dump.entries[0].tag, 5);
  EXPECT_EQ(dump.groups[0].enqueued.sequence, -1);
}

TEST(FlightRecorder, ClosedGroupsAreForgottenWhenTheirCallsAre) {
  FlightRecorder recorder({.entries = 4, .rank = 0, .world_size = 1});
  for (int g = 0; g < 100; ++g) {
    FlightGroup& group = recorder.add_group("g" + std::to_string(g), "", {0});
    recorder.ended(recorder.begin(group, all_reduce(1), 8, 8), FlightState::completed);
    recorder.close_group(group);
  }
  const FlightDump dump = recorder.snapshot("");
  EXPECT_LE(dump.groups.size(), 7u);
  EXPECT_EQ(dump.groups.back().name, "g99");
  EXPECT_EQ(dump.entries.back().group, "g99");
}

// More threads than processors and a ring that goes round in the time one of them is asleep: calls of two threads meet
// in one slot all the time.
TEST(FlightRecorder, ThreadsAndGroupsRecordTogetherWhileDumpsAreTaken) {
  FlightRecorder recorder({.entries = 8, .rank = 0, .world_size = 1});
  constexpr int kThreads = 6, kCalls = 20'000;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    FlightGroup& group = recorder.add_group("g" + std::to_string(t), "", {t});
    threads.emplace_back([&, t] {
      for (int64_t s = 1; s <= kCalls; ++s) {
        const uint64_t id = recorder.enqueue(group, all_reduce(s, t + 1), 4 * (t + 1), 4 * (t + 1));
        recorder.started(id);
        recorder.ended(id, FlightState::completed);
      }
      --running;
    });
  }
  do {
    for (const FlightEntry& e : recorder.snapshot("").entries) {
      const int t = e.group[1] - '0';
      EXPECT_EQ(e.input_sizes[0][0], t + 1);  // fields of one call
      EXPECT_GE(e.sequence, 1);
    }
  } while (running > 0);
  for (std::thread& thread : threads) thread.join();
  const FlightDump dump = recorder.snapshot("");
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(dump.groups[t].enqueued.sequence, kCalls);
    EXPECT_EQ(dump.groups[t].completed.numel_in, static_cast<int64_t>(t) + 1);  // marked by calls of this group only
  }
}

TEST(FlightRecorder, EachRankHasItsOwn) {
  RankContext a({.rank = 0, .world_size = 2}), b({.rank = 1, .world_size = 2});
  const FlightRecorder *first = nullptr, *second = nullptr;
  {
    RankContext::Scope scope(a);
    first = &FlightRecorder::current();
    EXPECT_EQ(first, &FlightRecorder::current());
  }
  {
    RankContext::Scope scope(b);
    second = &FlightRecorder::current();
    EXPECT_EQ(second->rank(), 1);
  }
  EXPECT_NE(first, second);
}

TEST(FlightRecorder, TheEnvironmentSaysHowManyCallsAreKept) {
  setenv("TUTTI_FLIGHT_RECORDER_ENTRIES", "17", 1);
  EXPECT_EQ(FlightRecorder().entries(), 17);
  for (const char* nonsense : {"many", "0", "-3", "12x", "100001"}) {
    setenv("TUTTI_FLIGHT_RECORDER_ENTRIES", nonsense, 1);
    try {
      FlightRecorder recorder;
      ADD_FAILURE() << nonsense;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()), std::string("TUTTI_FLIGHT_RECORDER_ENTRIES is '") + nonsense +
                                               "'; expected a whole number of calls from 1 to 100000");
    }
  }
  unsetenv("TUTTI_FLIGHT_RECORDER_ENTRIES");
  EXPECT_EQ(FlightRecorder().entries(), FlightRecorder::kDefaultEntries);
}

TEST(FlightRecorder, TheFileHasTheKeysThatOtherToolsRead) {
  TemporaryFolder folder;
  FlightRecorder recorder({.rank = 2, .world_size = 4, .prefix = folder / "trace_"});
  FlightGroup& group = recorder.add_group("dp", "a \"quoted\" \x01 name \xff", {2, 0});
  recorder.ended(recorder.begin(group, all_reduce(1), 4096, 4096), FlightState::completed);
  recorder.enqueue(group, recv(1, 1, 9), 0, 24);
  const std::string path = recorder.dump("because");
  EXPECT_EQ(path, folder / "trace_2");
  const auto json = nlohmann::json::parse(testing::read_whole_file(path));
  EXPECT_EQ(json["version"], "2.10");
  EXPECT_TRUE(json["comm_lib_version"].get<std::string>().starts_with("tutti "));
  EXPECT_EQ(json["pg_config"]["dp"]["ranks"], "[2, 0]");
  EXPECT_EQ(json["pg_config"]["dp"]["desc"], "a \"quoted\" \x01 name ?");
  EXPECT_EQ(json["pg_status"]["0"]["last_completed_collective"], 1);
  EXPECT_EQ(json["pg_status"]["0"]["last_enqueued_collective_name"], "all_reduce");
  const auto& call = json["entries"][0];
  for (const char* key : {"record_id",
                          "pg_id",
                          "process_group",
                          "collective_seq_id",
                          "p2p_seq_id",
                          "is_p2p",
                          "op_id",
                          "profiling_name",
                          "input_sizes",
                          "input_dtypes",
                          "output_sizes",
                          "output_dtypes",
                          "time_created_ns",
                          "time_discovered_started_ns",
                          "time_discovered_completed_ns",
                          "duration_ms",
                          "timeout_ms",
                          "state",
                          "retired",
                          "thread_id",
                          "thread_name",
                          "frames"}) {
    EXPECT_TRUE(call.contains(key)) << key;
  }
  EXPECT_EQ(call["profiling_name"], "tutti:all_reduce");
  EXPECT_EQ(call["state"], "completed");
  EXPECT_EQ(call["retired"], true);
  const auto& message = json["entries"][1];
  EXPECT_EQ(message["is_p2p"], true);
  EXPECT_EQ(message["p2p_seq_id"], 1);
  EXPECT_EQ(message["collective_seq_id"], 0);
  EXPECT_TRUE(message["time_discovered_started_ns"].is_null());
}

TEST(FlightRecorder, WhatIsWrittenReadsBackTheSame) {
  FlightRecorder recorder({.rank = 2, .world_size = 4});
  FlightGroup& group = recorder.add_group("dp", "data", {0, 1, 2, 3});
  recorder.add_group("unused", "", {2});
  for (int64_t s = 1; s <= 5; ++s)
    recorder.ended(recorder.begin(group, all_reduce(s), 4096, 4096), FlightState::completed);
  recorder.enqueue(group, recv(1, 1, 9), 0, 24);
  const std::string text = to_json(recorder.snapshot("why"));
  EXPECT_EQ(to_json(read_flight_dump(text, "a_2")), text);
}

TEST(FlightRecorder, AFailureIsWrittenOncePerGroup) {
  TemporaryFolder folder;
  FlightRecorder recorder({.rank = 1, .world_size = 2, .prefix = folder / "x"});
  FlightGroup& group = recorder.add_group("a", "", {0, 1});
  FlightGroup& other = recorder.add_group("b", "", {0, 1});
  EXPECT_EQ(recorder.dump_on_failure(group, "rank 0 died"), "the last calls are in " + (folder / "x1"));
  EXPECT_EQ(recorder.dump_on_failure(group, "rank 0 died"), "");
  EXPECT_EQ(read_flight_dump_file(folder / "x1").reason, "rank 0 died");
  recorder.set_dump_prefix(folder / "nowhere/y");
  EXPECT_NE(recorder.dump_on_failure(other, "again").find("could not be written"), std::string::npos);
}

}  // namespace
}  // namespace tutti::comm

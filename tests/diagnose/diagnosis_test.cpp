#include "tutti/diagnose/diagnosis.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tutti/core/error.h"
#include "tutti/diagnose/flight_recorder.h"

namespace tutti::comm {
namespace {

using Kind = Finding::Kind;

// The recorders of a world, told what happened by each test.
class World {
 public:
  explicit World(int ranks) : ranks_(ranks) {
    for (int r = 0; r < ranks; ++r)
      recorders_.push_back(
          std::make_unique<FlightRecorder>(FlightRecorder::Options{.entries = 64, .rank = r, .world_size = ranks}));
  }
  void group(const std::string& name, const std::vector<int>& members) {
    for (const int r : members) groups_[{r, name}] = &recorders_[static_cast<size_t>(r)]->add_group(name, "", members);
  }
  // A call on one rank; left under way unless `state` says how it ended.
  void call(int rank, const std::string& group, CallRecord record, FlightState state = FlightState::started) {
    FlightRecorder& recorder = *recorders_[static_cast<size_t>(rank)];
    const int64_t bytes = record.numel() * itemsize(record.dtype);
    const uint64_t id = recorder.begin(*groups_.at({rank, group}), record, bytes, bytes);
    if (state == FlightState::completed || state == FlightState::failed) recorder.ended(id, state);
  }
  std::vector<FlightDump> dumps(const std::vector<int>& without = {}, const std::string& reason = "") const {
    std::vector<FlightDump> all;
    for (int r = 0; r < ranks_; ++r) {
      if (std::find(without.begin(), without.end(), r) != without.end()) continue;
      // Through the file's text, as users have it.
      all.push_back(
          read_flight_dump(to_json(recorders_[static_cast<size_t>(r)]->snapshot(reason)), "dump_" + std::to_string(r)));
    }
    return all;
  }

 private:
  int ranks_;
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::map<std::pair<int, std::string>, FlightGroup*> groups_;
};

CallRecord reduce_of(int64_t sequence, int64_t n = 1024, DType dtype = DType::f32) {
  CallRecord record{.kind = CollectiveKind::all_reduce, .sequence = sequence};
  record.describe_tensor(dtype, {n});
  return record;
}

CallRecord message(CollectiveKind kind, int64_t sequence, int peer, uint32_t tag, int64_t n = 4) {
  CallRecord record{.kind = kind, .root = peer, .tag = tag, .sequence = sequence};
  record.describe_tensor(DType::f32, {n});
  return record;
}

World four_ranks_that_finished(int64_t sequence) {
  World world(4);
  world.group("dp", {0, 1, 2, 3});
  for (int64_t s = 1; s <= sequence; ++s) {
    for (int r = 0; r < 4; ++r) world.call(r, "dp", reduce_of(s), FlightState::completed);
  }
  return world;
}

TEST(Diagnosis, NobodyWaits) {
  const Diagnosis d = diagnose(four_ranks_that_finished(3).dumps());
  EXPECT_TRUE(d.healthy());
  EXPECT_EQ(d.text, "No rank waits for another (ranks 0-3 looked at).");
}

TEST(Diagnosis, ARankHasNotJoined) {
  World world = four_ranks_that_finished(182);
  for (int r = 0; r < 3; ++r) world.call(r, "dp", reduce_of(183));
  const Diagnosis d = diagnose(world.dumps());
  ASSERT_EQ(d.findings.size(), 1u);
  EXPECT_EQ(d.findings[0].kind, Kind::missing);
  EXPECT_EQ(d.findings[0].waiting, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(d.findings[0].missing, (std::vector<int>{3}));
  EXPECT_EQ(d.text,
            "Ranks 0-2 are waiting in all_reduce #183 of group 'dp' (f32 [1024], sum), rank 3 finished #182 and has "
            "not joined.");
}

TEST(Diagnosis, ARankThatNeverCalledAnythingIsNamedSo) {
  World world(2);
  world.group("dp", {0, 1});
  world.call(0, "dp", {.kind = CollectiveKind::barrier, .sequence = 1});
  EXPECT_EQ(diagnose(world.dumps()).text,
            "Rank 0 is waiting in barrier #1 of group 'dp', rank 1 has not called any collective of the group.");
}

TEST(Diagnosis, AMissingFileIsNamed) {
  World world = four_ranks_that_finished(4);
  for (int r = 0; r < 3; ++r) world.call(r, "dp", reduce_of(5));
  const Diagnosis d = diagnose(world.dumps({3}));
  EXPECT_EQ(d.missing_dumps, (std::vector<int>{3}));
  EXPECT_EQ(d.text,
            "Ranks 0-2 are waiting in all_reduce #5 of group 'dp' (f32 [1024], sum), rank 3 gave no dump. There is no "
            "dump of rank 3.");
}

TEST(Diagnosis, DifferentOperationsSizesAndDtypesAreMismatches) {
  const auto with = [](const CallRecord& third) {
    World world = four_ranks_that_finished(2);
    for (int r = 0; r < 4; ++r) world.call(r, "dp", r == 2 ? third : reduce_of(3));
    return diagnose(world.dumps());
  };
  CallRecord barrier{.kind = CollectiveKind::barrier, .sequence = 3}, avg = reduce_of(3);
  avg.reduce = ReduceKind::avg;
  EXPECT_EQ(with(barrier).text,
            "The operations of collective #3 of group 'dp' differ: ranks 0, 1, 3 called all_reduce(f32 [1024], sum), "
            "rank 2 called barrier().");
  EXPECT_EQ(with(reduce_of(3, 1000)).findings[0].field, "sizes");
  EXPECT_EQ(with(reduce_of(3, 1024, DType::bf16)).findings[0].field, "dtypes");
  EXPECT_EQ(with(avg).findings[0].field, "reduce ops");
  CallRecord splits = reduce_of(3);
  splits.splits = 99;
  const Diagnosis d = with(splits);
  ASSERT_EQ(d.findings.size(), 1u);  // what follows from a mismatch is not said apart
  EXPECT_EQ(d.findings[0].kind, Kind::mismatch);
  EXPECT_NE(d.text.find("rank 0 and rank 2 called all_reduce(f32 [1024], sum) with different plans (agreement keys)"),
            std::string::npos)
      << d.text;
}

TEST(Diagnosis, SizesThatMayDifferDo) {
  World world(2);
  world.group("dp", {0, 1});
  for (int r = 0; r < 2; ++r) {
    CallRecord record{.kind = CollectiveKind::all_gather_v, .sequence = 1, .same_sizes = false};
    record.describe_tensor(DType::f32, {r + 1});
    world.call(r, "dp", record, FlightState::completed);
  }
  EXPECT_TRUE(diagnose(world.dumps()).healthy());
}

TEST(Diagnosis, AMismatchThatAllRanksSurvivedIsForgotten) {
  World world(2);
  world.group("dp", {0, 1});
  for (int r = 0; r < 2; ++r) world.call(r, "dp", reduce_of(1, 10 + r), FlightState::failed);
  for (int r = 0; r < 2; ++r) world.call(r, "dp", reduce_of(2), FlightState::completed);
  EXPECT_TRUE(diagnose(world.dumps()).healthy());
}

TEST(Diagnosis, StatesDiffer) {
  World world = four_ranks_that_finished(6);
  for (int r = 0; r < 4; ++r) world.call(r, "dp", reduce_of(7), r == 3 ? FlightState::started : FlightState::completed);
  const Diagnosis d = diagnose(world.dumps());
  EXPECT_EQ(d.findings[0].kind, Kind::late);
  EXPECT_EQ(d.text,
            "All ranks came to all_reduce #7 of group 'dp' (f32 [1024], sum); it has ended on ranks 0-2 and not on "
            "rank 3, which is still at it: "
            "look whether it is alive and moving data.");
}

TEST(Diagnosis, AllAreAtIt) {
  World world = four_ranks_that_finished(1);
  for (int r = 0; r < 4; ++r) world.call(r, "dp", reduce_of(2));
  EXPECT_EQ(diagnose(world.dumps()).findings[0].kind, Kind::under_way);
}

TEST(Diagnosis, TheCauseStandsBeforeWhatItCauses) {
  World world(4);
  world.group("dp", {0, 1});
  world.group("tp", {1, 2, 3});
  world.call(0, "dp", reduce_of(1));  // waits for rank 1,
  world.call(1, "tp", reduce_of(1));  // which waits with rank 2 for rank 3
  world.call(2, "tp", reduce_of(1));
  const Diagnosis d = diagnose(world.dumps());
  ASSERT_EQ(d.findings.size(), 2u);
  EXPECT_EQ(d.findings[0].group, "tp");
  EXPECT_EQ(d.text,
            "Ranks 1, 2 are waiting in all_reduce #1 of group 'tp' (f32 [1024], sum), rank 3 has not called any "
            "collective of the group. "
            "Also: rank 0 is waiting in all_reduce #1 of group 'dp' (f32 [1024], sum), rank 1 has not called any "
            "collective of the group: it waits in "
            "all_reduce #1 of group 'tp' (f32 [1024], sum).");
}

TEST(Diagnosis, GroupsInDifferentOrderAreADeadlock) {
  World world(2);
  world.group("a", {0, 1});
  world.group("b", {0, 1});
  world.call(0, "a", reduce_of(1));
  world.call(1, "b", reduce_of(1));
  const Diagnosis d = diagnose(world.dumps());
  ASSERT_EQ(d.findings.size(), 1u);
  EXPECT_EQ(d.findings[0].kind, Kind::deadlock);
  EXPECT_EQ(d.findings[0].waiting, (std::vector<int>{0, 1}));
  EXPECT_NE(d.text.find("Ranks wait for each other"), std::string::npos);
  EXPECT_NE(d.text.find("in the same order"), std::string::npos);
}

TEST(Diagnosis, AReceiveWithoutItsSend) {
  World world(2);
  world.group("pp", {0, 1});
  world.call(1, "pp", message(CollectiveKind::recv, 1, 0, 7));
  const Diagnosis d = diagnose(world.dumps());
  ASSERT_EQ(d.findings.size(), 1u);
  EXPECT_EQ(d.findings[0].kind, Kind::message);
  EXPECT_NE(d.text.find("rank 0 has no send with tag 7 under way"), std::string::npos) << d.text;
  world.call(0, "pp", message(CollectiveKind::send, 1, 1, 7));
  EXPECT_TRUE(diagnose(world.dumps()).healthy());
}

TEST(Diagnosis, MessagesOfDifferentSize) {
  World world(2);
  world.group("pp", {0, 1});
  world.call(0, "pp", message(CollectiveKind::send, 1, 1, 7, 5));
  world.call(1, "pp", message(CollectiveKind::recv, 1, 0, 7, 4));
  const Diagnosis d = diagnose(world.dumps());
  ASSERT_EQ(d.findings.size(), 1u);
  EXPECT_NE(d.text.find("the messages differ"), std::string::npos) << d.text;
}

TEST(Diagnosis, AFailureIsToldWithItsReason) {
  World world = four_ranks_that_finished(2);
  for (int r = 0; r < 3; ++r) world.call(r, "dp", reduce_of(3), FlightState::failed);
  EXPECT_EQ(diagnose(world.dumps({}, "rank 3 (pid 12) died")).text,
            "All_reduce #3 of group 'dp' (f32 [1024], sum) failed on ranks 0-2, rank 3 had not joined it; rank 0 says: "
            "rank 3 (pid 12) died.");
}

TEST(Diagnosis, AReasonIsNotGivenForTheFailureOfAnotherGroup) {
  World world = four_ranks_that_finished(2);
  for (int r = 0; r < 3; ++r) world.call(r, "dp", reduce_of(3), FlightState::failed);
  const std::string text = diagnose(world.dumps({}, "barrier #1 of group 'pp' was aborted.")).text;
  EXPECT_EQ(text, "All_reduce #3 of group 'dp' (f32 [1024], sum) failed on ranks 0-2, rank 3 had not joined it.");
  const std::string own = diagnose(world.dumps({}, "all_reduce #3 of group 'dp' was aborted.")).text;
  EXPECT_TRUE(own.ends_with("; rank 0 says: all_reduce #3 of group 'dp' was aborted.")) << own;
}

TEST(Diagnosis, TwoDumpsOfOneRankAreRefused) {
  World world = four_ranks_that_finished(1);
  auto dumps = world.dumps();
  dumps.push_back(dumps[1]);
  try {
    diagnose(dumps);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "two dumps are of rank 1: dump_1 and dump_1; give one per rank, all of the same run");
  }
  EXPECT_THROW(diagnose({}), UsageError);
}

TEST(Diagnosis, JsonHasWhatTheTextSays) {
  World world = four_ranks_that_finished(2);
  for (int r = 0; r < 3; ++r) world.call(r, "dp", reduce_of(3));
  const Diagnosis d = diagnose(world.dumps());
  const auto json = nlohmann::json::parse(to_json(d));
  EXPECT_EQ(json["healthy"], false);
  EXPECT_EQ(json["text"], d.text);
  EXPECT_EQ(json["findings"][0]["kind"], "missing");
  EXPECT_EQ(json["findings"][0]["sequence"], 3);
  EXPECT_EQ(json["findings"][0]["missing"], (std::vector<int>{3}));
  EXPECT_EQ(json["ranks"], (std::vector<int>{0, 1, 2, 3}));
}

TEST(Diagnosis, FilesOfOtherProgramsAreUnderstood) {
  const auto file = [](int rank, int calls) {
    std::string entries;
    for (int s = 1; s <= calls; ++s) {
      entries += std::string(s > 1 ? "," : "") + R"({"record_id": )" + std::to_string(s - 1) +
                 R"(, "pg_id": 0, "process_group": ["0", "default_pg"],
        "collective_seq_id": )" +
                 std::to_string(s) +
                 R"(, "p2p_seq_id": 0, "op_id": 1, "profiling_name": "nccl:all_reduce", "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"], "output_sizes": [[3, 4]], "output_dtypes": ["Float"], "time_created_ns": 1724779239936775119,
        "state": ")" +
                 (s == 2 ? "scheduled" : "completed") +
                 R"(", "retired": false, "is_p2p": false, "timeout_ms": 600000, "frames": []})";
    }
    return read_flight_dump(
        R"({"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "pg_status": {"0":
        {"last_enqueued_collective": "2", "last_started_collective": -1, "last_completed_collective": 1}}, "entries": [)" +
            entries + "]}",
        "trace_" + std::to_string(rank));
  };
  auto late = file(1, 1);
  late.groups[0].enqueued.sequence = 1;
  const std::vector<FlightDump> dumps{file(0, 2), late};
  EXPECT_EQ(diagnose(dumps).text,
            "Rank 0 is waiting in all_reduce #2 of group '0' (Float [3, 4]), rank 1 finished #1 and has not joined.");
}

}  // namespace
}  // namespace tutti::comm

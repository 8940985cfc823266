// `tutti trace why` on files as ranks write them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/support/program.h"
#include "tutti/diagnose/flight_recorder.h"

namespace tutti::test {
namespace {

using comm::CollectiveKind;
using comm::FlightRecorder;
using comm::FlightState;

// Ranks 0 and 1 wait in the second call when `stuck`; rank 2 ended the first.
void write_dumps(const Workplace& work, bool stuck) {
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecorder recorder({.rank = rank, .world_size = 3, .prefix = (work.folder() / "flight_").string()});
    comm::FlightGroup& group = recorder.add_group("world", "", {0, 1, 2});
    comm::CallRecord record{.kind = CollectiveKind::all_reduce, .sequence = 1};
    record.describe_tensor(DType::bf16, {8, 2});
    recorder.ended(recorder.begin(group, record, 32, 32), FlightState::completed);
    record.sequence = 2;
    if (stuck && rank != 2) recorder.begin(group, record, 32, 32);
    recorder.dump("test");
  }
}

TEST(TraceWhy, SaysInOneLineWhoIsMissingWhere) {
  Workplace work;
  write_dumps(work, true);
  const Output output = work.tutti("trace why flight_0 flight_1 flight_2");
  EXPECT_EQ(output.status, 3) << output.err;
  EXPECT_EQ(output.out,
            "Ranks 0, 1 are waiting in all_reduce #2 of group 'world' (bf16 [8, 2], sum), rank 2 finished #1 and has "
            "not joined.\n");
}

TEST(TraceWhy, JsonIsOneObject) {
  Workplace work;
  write_dumps(work, true);
  const Output output = work.tutti("trace why flight_0 flight_1 --json");
  const auto json = nlohmann::json::parse(output.out);
  EXPECT_EQ(json["findings"][0]["waiting"], (std::vector<int>{0, 1}));
  EXPECT_EQ(json["missing_dumps"], (std::vector<int>{2}));
}

TEST(TraceWhy, HealthyRanksGiveStatusZero) {
  Workplace work;
  write_dumps(work, false);
  const Output output = work.tutti("trace why flight_0 flight_1 flight_2");
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_EQ(output.out, "No rank waits for another (ranks 0-2 looked at).\n");
}

TEST(TraceWhy, WrongFilesAreNamedWithTheirPlace) {
  Workplace work;
  work.write("broken_0", "{\"version\": \"2.10\", ");
  work.write("other_0",
             "{\"version\": \"2.10\", \"rank\": 0, \"entries\": [{\"record_id\": \"x\"}], \"pg_config\": {}, "
             "\"pg_status\": {}}");
  const Output broken = work.tutti("trace why broken_0"), other = work.tutti("trace why other_0"),
               none = work.tutti("trace why nowhere_0");
  EXPECT_EQ(broken.status, 2);
  EXPECT_NE(broken.err.find("broken_0:1:21: byte 21: not JSON"), std::string::npos) << broken.err;
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("other_0: entries[0].record_id: 'x' is not a whole number"), std::string::npos) << other.err;
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("nowhere_0: cannot be read: No such file"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace tutti::test

// What every transport owes its ranks when one dies, leaves or is late, and when groups come and go: the same scenarios
// and the same expectations over all of them (support/fault_scenarios.cpp). support/fault_ranks.cpp names the rows that
// a transport cannot have.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/comm/support/fault_ranks.h"
#include "tests/comm/support/sample_calls.h"
#include "tests/comm/support/traces.h"
#include "tutti/comm/message/wire.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using ::testing::Combine;
using ::testing::TestWithParam;
using ::testing::ValuesIn;
using Kind = CollectiveKind;

// As docs/comm.md says. A busy machine takes its share of it, so a scenario that took longer is played again, up to so
// many times.
constexpr double kWithinSeconds = 1;
constexpr int kAttempts = 4;

std::string name_of_parameter(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string whole(const Played& played, int rank, const std::string& key) {
  const Told& told = played.ranks[static_cast<size_t>(rank)];
  return fmt::format("rank {}: '{}' {} {} ms; output: {}", rank, told[key + ".class"], told[key + ".text"],
                     told[key + ".ms"], played.output);
}

double seconds_until_the_last_ended(const Played& played, int victim) {
  double longest = 0;
  for (int r = 0; r < kFaultRanks; ++r) {
    if (r != victim)
      longest = std::max(longest, (played.ranks[static_cast<size_t>(r)].number("ended") -
                                   played.ranks[static_cast<size_t>(victim)].number("died")) /
                                      1e9);
  }
  return longest;
}

// All but the victim end soon with an error that names it, the group, and one of the calls.
void expect_named_by_all(const std::string& transport, const std::string& scenario, const std::string& argument,
                         int victim, const std::vector<std::string>& calls) {
  Played played = play_over(transport, scenario, argument);
  for (int attempt = 1; attempt < kAttempts && seconds_until_the_last_ended(played, victim) > kWithinSeconds; ++attempt)
    played = play_over(transport, scenario, argument);
  const Told& dead = played.ranks[static_cast<size_t>(victim)];
  ASSERT_NE(dead["died"], "") << played.output;
  for (int r = 0; r < kFaultRanks; ++r) {
    if (r == victim) continue;
    const Told& told = played.ranks[static_cast<size_t>(r)];
    const std::string text = told["call.text"];
    EXPECT_EQ(told["call.class"], "PeerError") << whole(played, r, "call");
    EXPECT_TRUE(says(text, dead["name"]) && (says(text, "waited for it in ") || says(text, "was sending to it in ")) &&
                says(text, "of group '0'"))
        << whole(played, r, "call");
    EXPECT_TRUE(std::any_of(calls.begin(), calls.end(), [&](const std::string& call) { return says(text, call); }))
        << whole(played, r, "call");
    EXPECT_LT((told.number("ended") - dead.number("died")) / 1e9, kWithinSeconds) << whole(played, r, "call");
  }
}

// ---- death in a call ------------------------------------------------------------------------------------------------

class Killed : public TestWithParam<std::tuple<std::string, Kind>> {};
INSTANTIATE_TEST_SUITE_P(Over, Killed, Combine(ValuesIn(transports_with("death")), ValuesIn(all_kinds())),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), name_of(std::get<1>(info.param)));
                         });

TEST_P(Killed, ARankIsNamedByAllOthers) {
  const auto& [transport, kind] = GetParam();
  const Traces before = look_for_traces();
  // In turn: small offers right at the start, and larger ones a little later.
  const bool is_small = static_cast<int>(kind) % 2 == 0;
  const int victim = is_small ? 2 : 0;
  std::vector<std::string> calls = names_of_call(kind);
  calls.push_back("barrier #");  // in which all have met before
  expect_named_by_all(
      transport, "death",
      fmt::format("{} {} {} {}", static_cast<int>(kind), is_small ? 5 : 20'000, victim, is_small ? 0 : 2500), victim,
      calls);
  EXPECT_EQ(left_behind(before), "");
}

class Mute : public TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Mute, ValuesIn(transports_with("death")), name_of_parameter);

TEST_P(Mute, ARankThatDiedIsNamedBySmallSends) {
  expect_named_by_all(GetParam(), "mute", "-", 2, {"send #", "barrier #"});
}

class Left : public TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Left, ValuesIn(transports_with("leave")), name_of_parameter);

TEST_P(Left, ARankIsNamedByAllOthers) {
  for (const int victim : {0, 2})
    expect_named_by_all(GetParam(), "leave", fmt::format("{}", victim), victim, {"all_reduce #", "barrier #"});
}

class Survivors : public TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Survivors, ValuesIn(transports_with("shrink")), name_of_parameter);

TEST_P(Survivors, GoOn) {
  const Played played = play_over(GetParam(), "shrink");
  const std::string dead = played.ranks[1]["name"];
  for (const int r : {0, 2, 3}) {
    const Told& told = played.ranks[static_cast<size_t>(r)];
    EXPECT_EQ(told["death.class"], "PeerError") << whole(played, r, "death");
    EXPECT_TRUE(says(told["death.text"], dead)) << whole(played, r, "death");
    EXPECT_EQ(told["three"], fmt::format("{} 5", std::max(0, r - 1))) << played.output;
    if (r != 2) {
      EXPECT_EQ(told["two"], "pair 3") << played.output;
    }
  }
}

// ---- deadlines ------------------------------------------------------------------------------------------------------

class Late : public TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Late, ValuesIn(transports_with("deadlines")), name_of_parameter);

TEST_P(Late, ARankIsNamedAtTheDeadline) {
  const Played played = play_over(GetParam(), "deadlines");
  const std::string late = played.ranks[kFaultRanks - 1]["name"];
  ASSERT_NE(late, "") << played.output;
  for (const auto& [row, limit] : deadlines()) {
    double longest = 0;
    for (int r = 0; r < kFaultRanks - 1; ++r) {
      const Told& told = played.ranks[static_cast<size_t>(r)];
      const std::string text = told[row + ".text"];
      const double took = told.number(row + ".ms");
      EXPECT_EQ(told[row + ".class"], "TimeoutError") << row << " of " << whole(played, r, row);
      // In a monitored barrier rank 0 tells the others; who does not hear from it in time names it.
      const bool named = says(text, late) || (r > 0 && says(row, "monitored") && says(text, played.ranks[0]["name"]));
      EXPECT_TRUE(named) << row << " of " << whole(played, r, row);
      EXPECT_LE(took, told.number(row + ".sleeper") + std::max(limit / 10, 50.0))
          << row << " of " << whole(played, r, row) << " in attempt " << told[row + ".attempts"];
      longest = std::max(longest, took);
    }
    EXPECT_GE(longest, limit - 1) << row << ": the first one that came to its deadline tells the others";
  }
}

class Monitored : public TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Monitored, ValuesIn(transports_with("monitored")), name_of_parameter);

TEST_P(Monitored, ABarrierThatFailedDoesNotDisturbTheNext) {
  const Played played = play_over(GetParam(), "monitored");
  for (int r = 0; r < kFaultRanks; ++r) {
    const Told& told = played.ranks[static_cast<size_t>(r)];
    for (const int late : {2, 0}) {
      const std::string row = fmt::format("late {}", late);
      // Rank 0 finds that all have been there, though they have gone.
      EXPECT_EQ(told[row + ".class"], r == 0 && late == 0 ? "" : "TimeoutError") << whole(played, r, row);
      const bool names_it = says(told[row + ".text"], played.ranks[static_cast<size_t>(late)]["name"]);
      EXPECT_TRUE(names_it || r == late || (r > 0 && says(told[row + ".text"], played.ranks[0]["name"])))
          << whole(played, r, row);
      EXPECT_EQ(told[row + ", again.class"], "") << whole(played, r, row + ", again");
    }
    EXPECT_EQ(told["sum"], fmt::format("{}", kFaultRanks)) << played.output;
  }
}

// ---- groups that come and go ----------------------------------------------------------------------------------------

class Dropped : public TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Dropped, ValuesIn(transports_with("drop")), name_of_parameter);

TEST_P(Dropped, GroupsLeaveNothing) {
  constexpr int kGroups = 40;
  // What counts groups, what a rank keeps to know the packets of one that has ended, and a few buffers that the world
  // has in use at one moment and not at another; never a buffer per group.
  constexpr auto kBytes = static_cast<double>(kGroups * 1024 + 6 * max_packet_bytes(kFaultRanks));
  const Played played = play_over(GetParam(), "drop", fmt::format("{}", kGroups));
  for (int r = 0; r < kFaultRanks; ++r) {
    const Told& told = played.ranks[static_cast<size_t>(r)];
    ASSERT_NE(told["descriptors"], "") << "rank " << r << ": " << played.output;
    EXPECT_LE(told.number("descriptors"), kWatchedPeers) << "rank " << r << ": " << played.output;
    EXPECT_EQ(told["keys"], "0") << "rank " << r << ": " << played.output;
    EXPECT_LT(told.number("memory"), kBytes) << "rank " << r << ": " << played.output;
  }
}

// ---- rows that are missing ------------------------------------------------------------------------------------------

TEST(MissingRows, AreOfTransportsThatThereAre) {
  for (const MissingRow& row : missing_rows()) {
    const auto all = known_transports();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const TransportInfo& info) {
      return info.name == row.transport;
    })) << row.transport;
    const std::vector<std::string> rows = {"death", "shrink", "death while made", "death with the store"};
    EXPECT_NE(std::find(rows.begin(), rows.end(), row.row), rows.end()) << row.row;
    EXPECT_STRNE(row.reason, "");
  }
}

// What stands in for it: a thread that throws ends the group, and all others hear why.
TEST(MissingRows, APlainMpirunEndsAllRanksWithTheFirst) {
  const auto transports = transports_with("leave");
  if (std::find(transports.begin(), transports.end(), "mpi") == transports.end()) return;
  const Played played = play_under_plain_mpirun("death", fmt::format("{} 5 1 0", static_cast<int>(Kind::barrier)));
  EXPECT_NE(played.ranks[1]["died"], "") << played.output;
  EXPECT_FALSE(says(played.output, "failed: ")) << played.output;
}

}  // namespace
}  // namespace tutti::comm

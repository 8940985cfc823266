#include "tutti/runtime/trace/trace_merge.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

using Json = nlohmann::json;
using By = ClockOffset::By;

// A trace of `rank`, whose wall clock is `clock_error_ns` ahead of the true time.
struct FakeRank {
  int rank;
  int64_t clock_error_ns = 0;
  std::string clock;
  Json events = Json::array();

  // A call of the group of `world` ranks, in true nanoseconds.
  void collective(const std::string& name, int64_t sequence, int64_t begin_ns, int64_t end_ns,
                  const std::string& group = "world", const std::vector<int>& ranks = {0, 1}) {
    events.push_back({{"ph", "X"},
                      {"cat", "collective_comm"},
                      {"name", name},
                      {"pid", rank},
                      {"tid", 1'000'000'000},
                      {"ts", static_cast<double>(begin_ns) / 1e3},
                      {"dur", static_cast<double>(end_ns - begin_ns) / 1e3},
                      {"args",
                       {{"Collective name", name},
                        {"Process Group Name", group},
                        {"Process Group Ranks", ranks},
                        {"Seq", sequence}}}});
  }
  std::string text() const {
    return Json{{"schemaVersion", 1},
                {"baseTimeNanoseconds", int64_t{1'700'000'000'000'000'000} + clock_error_ns},
                {"distributedInfo", {{"rank", rank}, {"world_size", 2}}},
                {"tutti",
                 {{"clock", clock.empty() ? "clock " + std::to_string(rank) : clock},
                  {"monotonicNanoseconds", 5'000},
                  {"droppedEvents", rank}}},
                {"traceEvents", events}}
        .dump();
  }
};

struct TraceMerge : ::testing::Test {
  TraceMergeReport merge(const std::vector<FakeRank>& ranks) {
    std::vector<std::string> files;
    for (const FakeRank& rank : ranks)
      files.push_back(folder.write("rank-" + std::to_string(rank.rank) + ".json", rank.text()));
    const TraceMergeReport report = merge_traces(folder / "merged.json", files);
    merged = Json::parse(tutti::testing::read_whole_file(folder / "merged.json"));
    return report;
  }
  std::vector<Json> events(const std::string& phase, int pid) const {
    std::vector<Json> found;
    for (const Json& e : merged.at("traceEvents")) {
      if (e.at("ph") == phase && e.at("pid") == pid) found.push_back(e);
    }
    return found;
  }
  std::string message(const std::vector<std::string>& files) {
    try {
      merge_traces(folder / "merged.json", files);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  tutti::testing::TemporaryFolder folder;
  Json merged;
};

TEST_F(TraceMerge, FindsAKnownClockOffset) {
  constexpr int64_t kAhead = 3'600'000'123'456;  // an hour and a bit
  FakeRank zero{.rank = 0}, one{.rank = 1, .clock_error_ns = kAhead};
  std::mt19937 random(7);
  for (int i = 0; i < 101; ++i) {
    const int64_t end = 1'000'000 * (i + 1);
    const auto late = [&] {
      return static_cast<int64_t>(random() % 5 == 0 ? 200'000 : random() % 2'000);
    };  // now and then the system is slow
    zero.collective("all_reduce", i + 1, end - 50'000, end + late());
    one.collective("all_reduce", i + 1, end - 20'000, end + late());
  }
  const TraceMergeReport report = merge({one, zero});
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[0].rank, 0);
  EXPECT_EQ(report.ranks[0].offset.by, By::reference);
  EXPECT_EQ(report.ranks[1].offset.by, By::collectives);
  EXPECT_EQ(report.ranks[1].offset.matches, 101);
  EXPECT_NEAR(static_cast<double>(report.ranks[1].offset.ns), -static_cast<double>(kAhead), 2'000);
  EXPECT_EQ(merged.at("tutti").at("ranks").at(1).at("alignedBy"), "collectives");
  EXPECT_EQ(merged.at("tutti").at("droppedEvents"), 1);
  const double distance = events("X", 1)[0].at("ts").get<double>() - events("X", 0)[0].at("ts").get<double>();
  EXPECT_NEAR(distance, 30.0, 2.0);
}

TEST_F(TraceMerge, AnArrowLeadsFromTheRankThatCameLast) {
  FakeRank zero{.rank = 0}, one{.rank = 1};
  zero.collective("all_reduce", 1, 10'000, 90'000);
  one.collective("all_reduce", 1, 70'000, 90'000);
  const TraceMergeReport report = merge({zero, one});
  EXPECT_EQ(report.collectives, 1);
  EXPECT_EQ(report.arrows, 1);
  ASSERT_EQ(events("s", 1).size(), 1u);
  ASSERT_EQ(events("f", 0).size(), 1u);
  const Json start = events("s", 1)[0], finish = events("f", 0)[0];
  EXPECT_EQ(start.at("id"), finish.at("id"));
  EXPECT_EQ(start.at("ts"), 70.0);
  EXPECT_EQ(finish.at("ts"), 90.0);
  EXPECT_EQ(start.at("tid"), 1'000'000'000);
}

TEST_F(TraceMerge, ARootThatLeftEarlyHasItsArrowForwardInTime) {
  FakeRank zero{.rank = 0, .clock = "one"}, one{.rank = 1, .clock = "one"};
  zero.collective("broadcast", 1, 10'000, 20'000);
  one.collective("broadcast", 1, 50'000, 60'000);
  merge({zero, one});
  EXPECT_EQ(events("s", 0)[0].at("ts"), 20.0);
  EXPECT_EQ(events("f", 1)[0].at("ts"), 50.0);
}

TEST_F(TraceMerge, RanksOfOneMachineShareItsClockExactly) {
  FakeRank zero{.rank = 0, .clock = "boot"},
      one{.rank = 1, .clock_error_ns = 777, .clock = "boot"};  // the wall clock was set in between
  one.collective("all_reduce", 1, 0, 1'000'000);
  zero.collective("all_reduce", 1, 0, 1'400'000);
  const TraceMergeReport report = merge({zero, one});
  EXPECT_EQ(report.ranks[1].offset.by, By::same_clock);
  EXPECT_EQ(report.ranks[1].offset.ns, -777);
}

TEST_F(TraceMerge, ClocksAreAlignedOverRanksInBetween) {
  FakeRank zero{.rank = 0}, one{.rank = 1, .clock_error_ns = 1'000'000}, two{.rank = 2, .clock_error_ns = 5'000'000};
  zero.collective("barrier", 1, 0, 100'000, "a", {0, 1});
  one.collective("barrier", 1, 0, 100'000, "a", {0, 1});
  one.collective("barrier", 1, 200'000, 300'000, "b", {1, 2});
  two.collective("barrier", 1, 200'000, 300'000, "b", {1, 2});
  const TraceMergeReport report = merge({zero, one, two});
  EXPECT_EQ(report.ranks[2].offset.by, By::collectives);
  EXPECT_EQ(report.ranks[2].offset.ns, -5'000'000);
  EXPECT_EQ(report.arrows, 2);
}

TEST_F(TraceMerge, GroupsOfOneNameAreToldApartByTheirRanks) {
  FakeRank zero{.rank = 0}, one{.rank = 1};
  zero.collective("all_reduce", 1, 0, 100, "dp", {0, 2});
  one.collective("all_reduce", 1, 0, 100, "dp", {1, 3});
  const TraceMergeReport report = merge({zero, one});
  EXPECT_EQ(report.arrows, 0);
  EXPECT_EQ(report.ranks[1].offset.by, By::wall_clock);
}

TEST_F(TraceMerge, ArrowsOfTheFilesDoNotMeet) {
  FakeRank zero{.rank = 0}, one{.rank = 1};
  for (FakeRank* rank : {&zero, &one}) {
    for (const char* phase : {"s", "f"})
      rank->events.push_back(
          {{"ph", phase}, {"name", "fwdbwd"}, {"id", 1}, {"pid", rank->rank}, {"tid", 1}, {"ts", 1.0}});
  }
  merge({zero, one});
  EXPECT_EQ(events("s", 0)[0].at("id"), events("f", 0)[0].at("id"));
  EXPECT_NE(events("s", 0)[0].at("id"), events("s", 1)[0].at("id"));
}

TEST_F(TraceMerge, TracesOfTheProfilerCanBeMerged) {
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.path = folder / "rank-0.json"}).ok());
  ASSERT_TRUE(profiler.stop().ok());
  const std::string file = folder / "rank-0.json";
  EXPECT_EQ(merge_traces(folder / "merged.json", {&file, 1}).ranks.size(), 1u);
}

TEST_F(TraceMerge, WrongFilesAreNamedWithTheirPlace) {
  const std::string good = folder.write("good.json", FakeRank{.rank = 0}.text()),
                    again = folder.write("again.json", FakeRank{.rank = 0}.text());
  EXPECT_EQ(message({good, again}), good + " and " + again + " are both of rank 0; give one file per rank");
  EXPECT_EQ(message({folder / "nowhere.json"}),
            (folder / "nowhere.json") + ": cannot be read: No such file or directory");
  EXPECT_NE(message({folder.path()}).find("cannot be read: it is a folder"), std::string::npos);
  EXPECT_EQ(message({}), "merging traces: no file was given");
  const std::string torn = folder.write("torn.json", FakeRank{.rank = 0}.text().substr(0, 40));
  EXPECT_NE(message({torn}).find("torn.json:1:41: byte 41: not JSON: "), std::string::npos) << message({torn});
  const std::string other = folder.write("other.json", R"({"traceEvents": []})");
  EXPECT_EQ(message({other}), other + ": has no 'tutti'");
  FakeRank odd{.rank = 0};
  odd.events.push_back({{"ph", "X"}, {"pid", "zero"}, {"ts", 1}});
  EXPECT_NE(
      message({folder.write("odd.json", odd.text())}).find("traceEvents[0].pid: is \"zero\", expected a whole number"),
      std::string::npos);
  odd.events[0] = {{"ph", "X"}, {"pid", 0}, {"ts", "late"}};
  EXPECT_NE(message({folder.write("odd.json", odd.text())}).find("traceEvents[0].ts: is \"late\", expected a number"),
            std::string::npos);
  odd.events[0] = 7;
  EXPECT_NE(message({folder.write("odd.json", odd.text())}).find("traceEvents[0]: is 7, expected an object"),
            std::string::npos);
  EXPECT_NE(message({folder.write("merged.json", FakeRank{.rank = 0}.text())}).find("is both read and written"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti

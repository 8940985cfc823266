#include "tutti/train/step/step_profiler.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::train {
namespace {

struct Steps : ::testing::Test {
  // What is said over `count` steps and the end.
  std::string run(const ProfilerConfig& config, int count, int rank = 0) {
    StepProfiler profiler(config, folder.path(), rank);
    std::string said;
    for (int step = 0; step < count; ++step) {
      said += profiler.before_step();
      trace_mark("step");
      said += profiler.after_step();
    }
    return said + profiler.finish();
  }
  bool wrote(const std::string& name) const { return std::filesystem::exists(folder / name); }
  tutti::testing::TemporaryFolder folder;
};

TEST_F(Steps, AreTracedInTheirWindowOnly) {
  EXPECT_EQ(run({.enable = true, .first_step = 2, .steps = 3}, 10, 4),
            "trace of 3 events: " + (folder / "rank-4.json"));
  EXPECT_TRUE(wrote("rank-4.json"));
}

TEST_F(Steps, AreNotTracedUnlessAskedFor) {
  EXPECT_EQ(run({}, 10), "");
  EXPECT_FALSE(wrote("rank-0.json"));
}

TEST_F(Steps, ThatEndInsideTheWindowAreWritten) {
  EXPECT_EQ(run({.enable = true, .first_step = 2, .steps = 30}, 5), "trace of 4 events: " + (folder / "rank-0.json"));
}

TEST_F(Steps, ThatNeverReachTheWindowSaySo) {
  EXPECT_EQ(run({.enable = true, .first_step = 3}, 1),
            "profiler: no trace: the run ended 1 step after it was started, before profiler.first_step = 3; lower it");
  EXPECT_FALSE(wrote("rank-0.json"));
}

TEST_F(Steps, BeyondTheBufferAreCountedAndSaid) {
  EXPECT_EQ(run({.enable = true, .first_step = 1, .steps = 9, .events_per_thread = 4}, 9),
            "trace of 4 events (5 more were dropped; raise profiler.events_per_thread): " + (folder / "rank-0.json"));
}

}  // namespace
}  // namespace tutti::train

#include "tutti/comm/launcher.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tutti/comm/rank_environment.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

LaunchOptions shell(int ranks, const std::string& script) {
  return {.ranks = ranks, .program = "/bin/sh", .argv = {"sh", "-c", script}, .environment = {}};
}

LaunchOptions rank_program(int ranks, const std::string& name) {
  return {.ranks = ranks, .argv = {"rank"}, .environment = {"TUTTI_TEST_RANK_PROGRAM=" + name}};
}

struct Outcome {
  int status;
  std::string err;
};

Outcome launch_and_capture(const LaunchOptions& options) {
  ::testing::internal::CaptureStderr();
  const int status = launch_local(options);
  return {status, ::testing::internal::GetCapturedStderr()};
}

TEST(Launcher, ReturnsZeroWhenAllRanksSucceed) {
  EXPECT_EQ(launch_and_capture(shell(3, "exit 0")).status, 0);
}

TEST(Launcher, RanksReduceOverTheInheritedMemory) {
  for (const int ranks : {1, 2, 3, 5}) {
    const Outcome outcome = launch_and_capture(rank_program(ranks, "sum"));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
}

TEST(Launcher, TellsRanksTheirPlaceAsTorchrunDoes) {
  const Outcome outcome =
      launch_and_capture(shell(2, "test $RANK = 0 || echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE"));
  EXPECT_EQ(outcome.err, "[rank 1] 1 2 1 2\n");
}

TEST(Launcher, PrefixesLinesOfOtherRanksEvenUnfinishedOnes) {
  const Outcome outcome = launch_and_capture(shell(2, "test $RANK = 0 || { echo one; printf two >&2; }"));
  EXPECT_EQ(outcome.err, "[rank 1] one\n[rank 1] two\n");
}

TEST(Launcher, ReportsTheRankThatFailedAndEndsTheOthers) {
  const Outcome outcome = launch_and_capture(shell(3, "test $RANK = 1 && exit 7; exec sleep 100"));
  EXPECT_EQ(outcome.status, 7);
  EXPECT_NE(outcome.err.find("rank 1 (pid "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("exited with status 7"), std::string::npos) << outcome.err;
}

TEST(Launcher, LetsTheOthersSayWhatTheyKnowBeforeEndingThem) {
  const Outcome outcome = launch_and_capture(shell(2, "test $RANK = 1 && exit 7; sleep 0.05; echo the cause >&2; exit 2"));
  EXPECT_NE(outcome.err.find("the cause"), std::string::npos) << outcome.err;
}

TEST(Launcher, NamesTheSignalThatKilledARank) {
  const Outcome outcome = launch_and_capture(shell(2, "test $RANK = 1 && kill -SEGV $$; exec sleep 100"));
  EXPECT_EQ(outcome.status, 128 + SIGSEGV);
  EXPECT_NE(outcome.err.find("was killed by SIGSEGV"), std::string::npos) << outcome.err;
}

TEST(Launcher, BlamesTheKilledRankAndNotThoseThatNoticed) {
  const Outcome outcome = launch_and_capture(rank_program(3, "die"));
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_NE(outcome.err.find("was killed by SIGKILL"), std::string::npos) << outcome.err;
}

TEST(Launcher, KillsRanksThatIgnoreTerminationAfterTheGraceTime) {
  LaunchOptions options = shell(2, "test $RANK = 1 && exit 3; trap '' TERM; while :; do read x < /dev/zero; done");
  options.notice = options.grace = std::chrono::milliseconds(50);
  EXPECT_EQ(launch_and_capture(options).status, 3);
}

TEST(Launcher, PassesAnInterruptOnAndReturns130) {
  // The ranks signal the launcher, and end with 130 on what comes back.
  const Outcome outcome = launch_and_capture(
      shell(2, "trap 'exit 130' INT; test $RANK = 0 && kill -INT $PPID; while :; do sleep 0.01; done"));
  EXPECT_EQ(outcome.status, 130);
}

TEST(Launcher, SaysWhatCannotBeStarted) {
  LaunchOptions options = shell(2, "");
  options.program = "/no/such/program";
  try {
    launch_local(options);
    FAIL() << "it was started";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(), "cannot start rank 0 (/no/such/program): No such file or directory");
  }
}

TEST(Launcher, LeavesNoRankBehindWhenItIsKilled) {
  // This process adopts the orphans, so it can wait for their end.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    dup2(fds[1], STDOUT_FILENO);
    close(fds[0]);
    close(fds[1]);
    _exit(launch_local(rank_program(2, "orphan")));
  }
  close(fds[1]);
  char text[32] = {};
  ASSERT_GT(read(fds[0], text, sizeof text - 1), 0);
  kill(launcher, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
  const pid_t rank0 = std::atoi(text);
  EXPECT_EQ(waitpid(rank0, &status, 0), rank0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_GT(waitpid(-1, &status, 0), 0) << "rank 1 was left behind";
  close(fds[0]);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(RankEnvironment, IsAbsentWithoutALauncher) {
  EXPECT_FALSE(read_rank_environment().has_value());
}

TEST(RankEnvironment, NamesTheVariableThatIsMissing) {
  setenv("TUTTI_RANK", "0", 1);
  try {
    read_rank_environment();
    FAIL() << "it was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("TUTTI_WORLD_SIZE is not"), std::string::npos) << error.what();
  }
  unsetenv("TUTTI_RANK");
}

}  // namespace
}  // namespace tutti::comm

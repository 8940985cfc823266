#include "tutti/job/launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <tuple>

#include "tests/job/support/temporary_folder.h"
#include "tests/support/file_size_limit.h"
#include "tutti/core/error.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/rank_output.h"
#include "tutti/job/peer.h"
#include "tutti/job/printable.h"

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

TEST(ForeignText, ControlsNoTerminal) {
  EXPECT_EQ(printable("host7\x1b[2J\x07\r\n\x7f"), "host7\\x1b[2J\\x07\\x0d\\x0a\\x7f");
  EXPECT_EQ(printable("a\tb \xc3\xa4 \xe2\x82\xac"), "a\tb \xc3\xa4 \xe2\x82\xac");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J \xc2\xa0"),
            "\\xc2\\x9b"
            "2J \xc2\xa0");
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable_lines("one\ntwo\r\x1b[2J\n"), "one\ntwo\\x0d\\x1b[2J\n");
  EXPECT_EQ(describe(1, {.pid = 7, .host = "h\x1b[2J"}), "rank 1 (pid 7 on h\\x1b[2J)");
}

TEST(Launcher, ReturnsZeroWhenAllRanksSucceed) { EXPECT_EQ(launch_and_capture(shell(3, "exit 0")).status, 0); }

TEST(Launcher, RanksReduceOverSharedMemory) {
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

TEST(Launcher, TellsRanksWhatTorchrunTells) {
  unsetenv("OMP_NUM_THREADS");
  unsetenv("TUTTI_THREADS");
  const Outcome outcome =
      launch_and_capture(shell(2,
                               "test $RANK = 0 || echo $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME $ROLE_RANK "
                               "$ROLE_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT "
                               "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $OMP_NUM_THREADS; test $MASTER_ADDR = "
                               "127.0.0.1 && test $MASTER_PORT -gt 0 && test $MASTER_PORT != $TUTTI_STORE_PORT && "
                               "test $TORCHELASTIC_USE_AGENT_STORE = False"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "[rank 1] 0 1 default 1 2 0 0 none 1\n");
}

TEST(Launcher, WhatTheUserHasSetIsKept) {
  const auto set = [](const char* name) { return std::string_view(name) != "TORCH_NCCL_ASYNC_ERROR_HANDLING"; };
  const auto unset = [](const char*) { return false; };
  EXPECT_EQ(rank_defaults(2, 8, set), (std::vector<std::string>{"TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
  EXPECT_EQ(rank_defaults(2, 8, unset),
            (std::vector<std::string>{"TUTTI_THREADS=4", "OMP_NUM_THREADS=1", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
  EXPECT_EQ(rank_defaults(1, 8, unset),
            (std::vector<std::string>{"TUTTI_THREADS=8", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
  EXPECT_EQ(rank_defaults(9, 8, unset)[0], "TUTTI_THREADS=1");
}

TEST(Launcher, AKeyFileOfTheUserDoesNotMeetTheKeyOfTheLauncher) {
  setenv("TUTTI_JOB_KEY_FILE", "/nowhere", 1);
  const Outcome outcome = launch_and_capture(rank_program(2, "sum"));
  unsetenv("TUTTI_JOB_KEY_FILE");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(Launcher, PrefixesLinesOfOtherRanksEvenUnfinishedOnes) {
  const Outcome outcome = launch_and_capture(shell(2, "test $RANK = 0 || { echo one; printf two >&2; }"));
  EXPECT_EQ(outcome.err, "[rank 1] one\n[rank 1] two\n");
}

TEST(Launcher, OutputMayHoldZeroBytes) {
  const Outcome outcome = launch_and_capture(shell(2, "test $RANK = 0 || { printf 'a\\000b\\nc\\n' >&2; exit 3; }"));
  EXPECT_NE(outcome.err.find(std::string("[rank 1] a\0b\n[rank 1] c\n", 24)), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(std::string("  a\0b\n  c\n", 10)), std::string::npos) << outcome.err;
}

TEST(Launcher, ReportsTheRankThatFailedAndEndsTheOthers) {
  const Outcome outcome = launch_and_capture(shell(3, "test $RANK = 1 && exit 7; exec sleep 100"));
  EXPECT_EQ(outcome.status, 7);
  EXPECT_NE(outcome.err.find("rank 1 (pid "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("exited with status 7"), std::string::npos) << outcome.err;
}

TEST(Launcher, LetsTheOthersSayWhatTheyKnowBeforeEndingThem) {
  const Outcome outcome =
      launch_and_capture(shell(2, "test $RANK = 1 && exit 7; sleep 0.05; echo the cause >&2; exit 2"));
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

TEST(Launcher, PrintsTheLastLinesOfTheRankThatFailed) {
  const Outcome outcome = launch_and_capture(shell(
      2, "test $RANK = 0 && exec sleep 100; for i in $(seq 30); do echo line $i >&2; done; printf end >&2; exit 4"));
  const size_t end = outcome.err.find("exited with status 4\nits last lines on stderr:\n  line 12\n");
  EXPECT_NE(end, std::string::npos) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with("  line 30\n  end\n")) << outcome.err;
}

TEST(Launcher, AnErrorThatNobodyCatchesIsNotBlamedBeforeItsCause) {
  const Outcome outcome = launch_and_capture(shell(2, "test $RANK = 1 && exit 7; sleep 0.1; kill -ABRT $$"));
  EXPECT_EQ(outcome.status, 7) << outcome.err;
}

TEST(Launcher, StartsAllRanksAgainWhileRestartsAreLeft) {
  TemporaryFolder folder;
  LaunchOptions options =
      shell(2, "echo $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS $TUTTI_STORE_PORT $TUTTI_JOB_KEY >> " +
                   folder.file("log") +
                   ".$RANK; test $RANK = 0 || test $TORCHELASTIC_RESTART_COUNT = 2 || exit 5; test "
                   "$TORCHELASTIC_RESTART_COUNT = 2 || exec sleep 100");
  options.max_restarts = 3;
  options.notice = std::chrono::milliseconds(10);
  const Outcome outcome = launch_and_capture(options);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("starting all ranks again: restart 2 of 3\n"), std::string::npos) << outcome.err;
  for (const char* rank : {"0", "1"}) {
    std::ifstream file(folder.file("log") + "." + rank);
    std::set<std::string> ports, keys;
    std::string count, port, key, counts;
    while (file >> count >> port >> key) {
      counts += count + " ";
      keys.insert(key);
    }
    EXPECT_EQ(counts, "0/3 1/3 2/3 ");
    EXPECT_EQ(keys.size(), 3u) << "ranks of two attempts can meet";
  }
}

TEST(Launcher, GivesUpWhenNoRestartIsLeft) {
  LaunchOptions options = shell(2, "exit 6");
  options.max_restarts = 2;
  const Outcome outcome = launch_and_capture(options);
  EXPECT_EQ(outcome.status, 6);
  EXPECT_NE(outcome.err.find("restart 2 of 2"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("restart 3"), std::string::npos) << outcome.err;
}

TEST(Launcher, WritesOutputToFilesByRestartAndRank) {
  TemporaryFolder folder;
  for (const bool tee : {false, true}) {
    LaunchOptions options = shell(2, "echo out $RANK; echo err $RANK >&2; test $TORCHELASTIC_RESTART_COUNT = 1");
    options.all_prefixed = true;
    options.log_dir = folder.file("logs/new");
    options.tee = tee;
    options.max_restarts = 1;
    ::testing::internal::CaptureStdout();
    const Outcome outcome = launch_and_capture(options);
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* restart : {"0", "1"}) {
      for (const char* rank : {"0", "1"}) {
        for (const std::string stream : {"out", "err"}) {
          std::ifstream file(options.log_dir + "/" + restart + "/rank" + rank + "." + stream);
          std::string line;
          std::getline(file, line);
          EXPECT_EQ(line, stream + " " + rank);
        }
      }
    }
    EXPECT_EQ(out.find("[rank 1] out 1\n") != std::string::npos, tee) << out;
    EXPECT_EQ(outcome.err.find("[rank 0] err 0\n") != std::string::npos, tee) << outcome.err;
  }
}

TEST(Launcher, EndsWhatARankHasStartedToo) {
  TemporaryFolder folder;
  // The ranks leave a process behind; the pipe of the test is open as long as one of them lives.
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  EXPECT_EQ(launch_and_capture(shell(2, "sleep 100 & test $RANK = 0 || exit 3; wait")).status, 3);
  close(fds[1]);
  char byte;
  EXPECT_EQ(read(fds[0], &byte, 1), 0);
  close(fds[0]);
}

TEST(Launcher, LeavesNoDescriptorAndNoChildBehind) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = count();
  LaunchOptions options = shell(3, "echo x; test $RANK = 1 && exit 3; exec sleep 100");
  options.notice = std::chrono::milliseconds(10);
  options.max_restarts = 2;
  EXPECT_EQ(launch_and_capture(options).status, 3);
  EXPECT_EQ(count(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Launcher, KillsRanksThatIgnoreTerminationAfterTheGraceTime) {
  LaunchOptions options = shell(2, "test $RANK = 1 && exit 3; trap '' TERM; while :; do read x < /dev/zero; done");
  options.notice = options.grace = std::chrono::milliseconds(50);
  EXPECT_EQ(launch_and_capture(options).status, 3);
}

// In a process of its own, which ends by SIGALRM if the launcher waits for ever.
Outcome launch_within_a_minute(const LaunchOptions& options, const std::function<void(pid_t launcher)>& meanwhile) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    alarm(60);
    dup2(fds[1], STDERR_FILENO);
    close(fds[0]);
    close(fds[1]);
    _exit(launch_local(options));
  }
  close(fds[1]);
  meanwhile(launcher);
  Outcome outcome{};
  char text[4096];
  for (ssize_t got; (got = read(fds[0], text, sizeof text)) > 0;) outcome.err.append(text, static_cast<size_t>(got));
  close(fds[0]);
  int status = 0;
  EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

TEST(Launcher, EndsARankThatHasLeftItsProcessGroup) {
  LaunchOptions options = rank_program(2, "stray");
  options.notice = options.grace = std::chrono::milliseconds(50);
  EXPECT_EQ(launch_within_a_minute(options, [](pid_t) {}).status, 7);
}

// Else the launcher would do nothing but read, and take no signal.
TEST(RankOutput, ARankThatWritesWithoutEndIsReadInPortions) {
  EXPECT_EXIT(
      {
        alarm(20);
        RankOutput output(UniqueFd(open("/dev/zero", O_RDONLY | O_CLOEXEC)), {.prefix = ""});
        for (int turn = 0; turn < 3; ++turn) output.forward();
        _exit(output.fd() >= 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(RankOutput, AConsoleThatMayNotGrowIsAnErrorOfItsStreamAndNoSignal) {
  const TemporaryFolder folder;
  EXPECT_EXIT(
      {
        int ends[2];
        std::FILE* console = std::fopen(folder.file("console").c_str(), "w");
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0 || console == nullptr || write(ends[1], "line\n", 5) != 5)
          _exit(2);
        const testing::FileSizeLimit limit(0);
        RankOutput output(UniqueFd(ends[0]), {.prefix = "[rank 1] ", .console = console});
        output.forward();
        _exit(std::ferror(console) != 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// The kernel keeps a process that is traced to its end, as it keeps one that waits for a file server.
TEST(Launcher, GoesWithoutARankThatSigkillDoesNotEnd) {
  TemporaryFolder folder;
  LaunchOptions options = shell(1, "echo $$ > " + folder.file("new") + "; mv " + folder.file("new") + " " +
                                       folder.file("pid") + "; exec sleep 100");
  options.all_prefixed = true;  // else the rank that is left would keep the pipe of the test open
  options.unkillable_after = std::chrono::milliseconds(300);
  pid_t rank = 0;
  const Outcome outcome = launch_within_a_minute(options, [&](pid_t launcher) {
    while (!std::filesystem::exists(folder.file("pid"))) usleep(1000);
    std::ifstream(folder.file("pid")) >> rank;
    EXPECT_EQ(ptrace(PTRACE_SEIZE, rank, nullptr, PTRACE_O_TRACEEXIT), 0) << strerror(errno);
    for (int i = 0; i < 3; ++i) {
      kill(launcher, i == 0 ? SIGINT : i == 1 ? SIGTERM : SIGHUP);
      usleep(20'000);
    }
  });
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_NE(outcome.err.find("tutti: rank 0 (pid " + std::to_string(rank) +
                             ") has not ended within 0.3 s of SIGKILL, and the launcher ends without it; 'cat /proc/" +
                             std::to_string(rank) + "/stack'"),
            std::string::npos)
      << outcome.err;
  ptrace(PTRACE_DETACH, rank, nullptr, nullptr);
}

TEST(Launcher, PassesAnInterruptOnAndReturns130) {
  // The ranks signal the launcher, and end with 130 on what comes back.
  const Outcome outcome = launch_and_capture(
      shell(2, "trap 'exit 130' INT; test $RANK = 0 && kill -INT $PPID; while :; do sleep 0.01; done"));
  EXPECT_EQ(outcome.status, 130);
}

TEST(Launcher, PassesOtherSignalsOn) {
  const Outcome outcome = launch_and_capture(
      shell(2, "trap 'exit 0' USR1; test $RANK = 0 && { sleep 0.1; kill -USR1 $PPID; }; while :; do sleep 0.01; done"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(Launcher, FailuresAfterTheSecondInterruptAreTheUsersWish) {
  // Two that arrive together are one: rank 0 waits for the first before it sends the second, and rank 1 ends with
  // either.
  const Outcome outcome =
      launch_and_capture(shell(2,
                               "n=0; trap 'n=$((n+1)); test $RANK = 1 && exit 0; test $n = 2 && exit 1' INT; "
                               "test $RANK = 0 && { kill -INT $PPID; while test $n = 0; do sleep 0.01; done; kill -INT "
                               "$PPID; }; while :; do sleep 0.01; done"));
  EXPECT_EQ(outcome.status, 130) << outcome.err;
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

TEST(TieToLauncher, DoesNothingWithoutALauncher) { EXPECT_NO_THROW(tie_to_launcher()); }

TEST(TieToLauncher, RefusesALauncherThatIsGone) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  setenv("TUTTI_LAUNCHER_PID", std::to_string(gone).c_str(), 1);
  EXPECT_THROW(tie_to_launcher(), EnvironmentError);
  unsetenv("TUTTI_LAUNCHER_PID");
  prctl(PR_SET_PDEATHSIG, 0);
}

// `tutti launch -- sh -c "a; b"`: the shell is the launcher's child, the program is the shell's.
TEST(TieToLauncher, AScriptMayStandBetween) {
  const Outcome outcome = launch_and_capture(
      shell(2, "TUTTI_TEST_RANK_PROGRAM=sum " + std::string(TUTTI_BINARY_DIR) + "/job_test; exit $?"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// ---- ranks that outlive one of them

LaunchOptions surviving(int ranks, const std::string& script) {
  LaunchOptions options = shell(ranks, script);
  options.survive_rank_loss = true;
  return options;
}

TEST(Launcher, LetsTheOthersGoOnWhenASignalKillsARank) {
  const Outcome outcome = launch_and_capture(
      surviving(3, "test $RANK = 1 && kill -KILL $$; sleep 0.2; test -n \"$TUTTI_JOB_FILE\" && echo went on"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("was killed by SIGKILL; 2 ranks go on without it"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("[rank 2] went on"), std::string::npos) << outcome.err;
}

TEST(Launcher, FailsWhenNoRankIsLeft) {
  const Outcome outcome = launch_and_capture(surviving(2, "test $RANK = 1 && sleep 0.2; kill -KILL $$"));
  EXPECT_EQ(outcome.status, 137);
  EXPECT_NE(outcome.err.find("rank 1"), std::string::npos) << outcome.err;
}

// The rank may not have done what is its own, unless the job says that all is done.
TEST(Launcher, ARankThatIsKilledWhenTheOthersHaveEndedIsMissedUnlessTheJobIsDone) {
  for (const auto& [program, status, text] :
       {std::tuple{"lost when done", 0, "was killed by SIGKILL; the others have done the work"},
        std::tuple{"lost when left", 137, "was killed by SIGKILL"}}) {
    for (const int restarts : {0, 1}) {
      if (restarts > 0 && status != 0) continue;  // it is started again
      LaunchOptions options = surviving(
          3, fmt::format("TUTTI_TEST_RANK_PROGRAM='{}' exec {}/job_test", program, std::string(TUTTI_BINARY_DIR)));
      options.max_restarts = restarts;
      const Outcome outcome = launch_and_capture(options);
      EXPECT_EQ(outcome.status, status) << program << ": " << outcome.err;
      EXPECT_NE(outcome.err.find(text), std::string::npos) << program << ": " << outcome.err;
      EXPECT_EQ(outcome.err.find("starting rank"), std::string::npos) << program << ": " << outcome.err;
    }
  }
}

TEST(Launcher, AnErrorOfARankEndsTheOthersAlsoWhereRanksAreSurvived) {
  LaunchOptions options = surviving(2, "test $RANK = 1 && exit 3; sleep 60");
  options.notice = std::chrono::milliseconds(10);
  EXPECT_EQ(launch_and_capture(options).status, 3);
}

TEST(Launcher, StartsAReplacementWhileRestartsAreLeft) {
  LaunchOptions options = surviving(2,
                                    "test $RANK = 1 && test $TORCHELASTIC_RESTART_COUNT -lt 2 && kill -KILL $$; test "
                                    "$RANK = 1 && echo third; sleep 0.5");
  options.max_restarts = 2;
  const Outcome outcome = launch_and_capture(options);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("starting rank 1 again: restart 2 of 2"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("[rank 1] third"), std::string::npos) << outcome.err;
}

TEST(Launcher, RanksThatAreSurvivedAreOnOneNode) {
  LaunchOptions options = surviving(1, "exit 0");
  options.nodes = {.min_nodes = 2, .max_nodes = 2, .node_rank = 0, .host = "127.0.0.1", .port = 29999};
  setenv("TUTTI_JOB_KEY", "0123456789abcdef0123456789abcdef", 1);
  try {
    launch_local(options);
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("leave out the other nodes"), std::string::npos) << error.what();
  }
  unsetenv("TUTTI_JOB_KEY");
}

}  // namespace
}  // namespace tutti::comm

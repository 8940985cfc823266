// What a user reads when a job cannot be started, or a rank or a node of it has failed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tutti/core/error.h"
#include "tutti/job/launch/failure.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/job/rendezvous/local_meeting.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {
namespace {

template <class ErrorType>
std::string complaint(const LaunchOptions& options) {
  try {
    launch_local(options);
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "nothing";
}

LaunchOptions shell(const std::string& script) { return {.program = "/bin/sh", .argv = {"sh", "-c", script}}; }

TEST(LaunchMessages, AFailedRankIsShownWithItsLastLines) {
  LaunchFailure failure{.kind = LaunchFailure::Kind::killed,
                        .status = 139,
                        .text = describe_exit(3, 4711, 11, " of node 1 (hostb)"),
                        .last_lines = {"loading", "oh no"}};
  ::testing::internal::CaptureStderr();
  print_failure(failure);
  print_failure(failure);  // once is enough
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "rank 3 (pid 4711) of node 1 (hostb) was killed by SIGSEGV\nits last lines on stderr:\n  loading\n  oh no\n");
}

TEST(LaunchMessages, TheEndOfARankIsTold) {
  EXPECT_EQ(describe_exit(2, 4711, 7 << 8), "rank 2 (pid 4711) exited with status 7");
  EXPECT_EQ(describe_exit(2, 4711, 9), "rank 2 (pid 4711) was killed by SIGKILL");
}

TEST(LaunchMessages, SeveralHostsNeedAJobKey) {
  unsetenv("TUTTI_JOB_KEY");
  unsetenv("TUTTI_JOB_KEY_FILE");
  LaunchOptions options = shell("exit 0");
  options.nodes = {.min_nodes = 2, .max_nodes = 2, .node_rank = 1, .host = "192.0.2.1", .port = 7000};
  EXPECT_EQ(complaint<UsageError>(options),
            "nodes that meet at 192.0.2.1:7000 need a job key: set TUTTI_JOB_KEY, or TUTTI_JOB_KEY_FILE, to the same "
            "secret on all nodes "
            "('openssl rand -hex 32' makes one). Without a key only nodes of one host can meet, at 127.0.0.1");
}

TEST(LaunchMessages, NodesThatDoNotComeAreCounted) {
  LaunchOptions options = shell("exit 0");
  options.nodes = {
      .min_nodes = 2, .max_nodes = 3, .node_rank = 0, .host = "127.0.0.1", .join = std::chrono::seconds(1)};
  const std::string text = complaint<EnvironmentError>(options);
  EXPECT_EQ(text.rfind("only 1 of 2:3 nodes came to 127.0.0.1:", 0), 0u) << text;
  EXPECT_NE(text.find(" within 1 s: 0"), std::string::npos) << text;
}

TEST(LaunchMessages, ANodeZeroThatIsNotThereIsNamed) {
  LaunchOptions options = shell("exit 0");
  options.nodes = {
      .min_nodes = 2, .max_nodes = 2, .node_rank = 1, .host = "127.0.0.1", .port = 1, .join = std::chrono::seconds(1)};
  const std::string text = complaint<EnvironmentError>(options);
  EXPECT_EQ(text.rfind("node 1: the launcher of node 0 does not answer at 127.0.0.1:1 within 1 s: ", 0), 0u) << text;
}

TEST(LaunchMessages, ALogFolderThatCannotBeMadeIsNamed) {
  LaunchOptions options = shell("exit 0");
  options.all_prefixed = true;
  options.log_dir = "/proc/nowhere";
  EXPECT_EQ(complaint<EnvironmentError>(options).rfind(
                "cannot make the folder /proc/nowhere/0 for the output of the ranks: ", 0),
            0u);
}

TEST(LaunchMessages, ALauncherThatIsGoneIsNamed) {
  setenv("TUTTI_LAUNCHER_PID", "999999999", 1);
  try {
    tie_to_launcher(0);
    ADD_FAILURE() << "nothing";
  } catch (const EnvironmentError& error) {
    EXPECT_EQ(std::string(error.what())
                  .rfind("the launcher of this rank (pid 999999999) is gone; unset TUTTI_LAUNCHER_PID when", 0),
              0u)
        << error.what();
  }
  unsetenv("TUTTI_LAUNCHER_PID");
}

TEST(LaunchMessages, ARankZeroThatOpensNoStoreIsNamed) {
  try {
    knock({.name = "tutti/test/nobody", .people = "the ranks that mpirun (pid 4711) has started"}, 1, 2,
          std::chrono::milliseconds(0));
    ADD_FAILURE() << "nothing";
  } catch (const StoreTimeout& error) {
    EXPECT_STREQ(error.what(),
                 "rank 1 of 2: rank 0 of the ranks that mpirun (pid 4711) has started has opened no store within 0.0 "
                 "s; has it ended, or does it not call "
                 "init_process_group()? Ranks in containers of their own need MASTER_ADDR and MASTER_PORT, set for all "
                 "to the host of rank 0 and a free port there");
  }
}

TEST(LaunchMessages, ASecondStoreAtTheSamePlaceIsRefused) {
  const LocalMeetingPlace place{.name = "tutti/test/two-doors",
                                .people = "the ranks that mpirun (pid 4711) has started"};
  const LocalDoor door(place, {}, 2);
  try {
    const LocalDoor second(place, {}, 2);
    ADD_FAILURE() << "nothing";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(),
                 "rank 0 cannot open the place 'tutti/test/two-doors' where the ranks that mpirun (pid 4711) has "
                 "started meet: Address already in use; does "
                 "rank 0 hold another store? Set MASTER_ADDR and MASTER_PORT to meet elsewhere");
  }
}

}  // namespace
}  // namespace tutti::comm

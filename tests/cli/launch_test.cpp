// `tutti launch` as a user runs it, on one host.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "tests/cli/support/program.h"
#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

bool wait_for_text(const Workplace& work, const std::string& file, const std::string& part) {
  for (int i = 0; i < 2000 && !says(work.read(file), part); ++i) usleep(10'000);
  return says(work.read(file), part);
}

bool is_there(int pid) { return kill(pid, 0) == 0; }

bool wait_for_end(int pid) {
  for (int i = 0; i < 1000 && is_there(pid); ++i) usleep(10'000);
  return !is_there(pid);
}

TEST(Launch, SaysRankAndPidAndPrefixesEveryLine) {
  Workplace work;
  const Output output = work.tutti("launch -n 2 -- sh -c 'echo out $$; echo err >&2'");
  EXPECT_EQ(output.status, 0) << output.err;
  for (const std::string rank : {"0", "1"}) {
    const size_t at = output.err.find("rank " + rank + ": pid ");
    ASSERT_NE(at, std::string::npos) << output.err;
    const int pid = std::atoi(output.err.c_str() + at + 12);
    EXPECT_TRUE(says(output.out, "[rank " + rank + "] out " + std::to_string(pid) + "\n")) << output.out;
    EXPECT_TRUE(says(output.err, "[rank " + rank + "] err\n")) << output.err;
  }
}

// Also where a shell stands between, and as often as it happens.
TEST(Launch, ARankThatIsStoppedIsNamedAndMayGoOn) {
  for (const char* program : {"sh -c 'test $RANK = 0 || kill -STOP $$; echo over'",
                              "sh -c 'test $RANK = 0 || sh -c \"kill -STOP \\$\\$\"; echo over'"}) {
    Workplace work;
    const int launcher = work.start(std::string("launch -n 2 -- ") + program);
    ASSERT_TRUE(wait_for_text(work, "err.txt", " there lets it go on\n")) << work.read("err.txt");
    const std::string text = work.read("err.txt");
    EXPECT_TRUE(says(text, "tutti: rank 1 (pid ") && says(text, ") has been stopped for ") &&
                says(text, ", and the other ranks wait for it; 'kill -CONT "))
        << text;
    EXPECT_FALSE(says(text, "tutti: rank 0 (pid ")) << text;
    kill(std::atoi(text.c_str() + text.find("kill -CONT ") + 11), SIGCONT);
    EXPECT_EQ(Workplace::wait(launcher), 0) << work.read("err.txt");
    EXPECT_TRUE(says(work.read("out.txt"), "[rank 1] over\n")) << work.read("out.txt");
  }
}

TEST(Launch, ArgumentsOfTheProgramAreItsOwn) {
  Workplace work;
  EXPECT_EQ(work.tutti("launch -n 1 -- sh -c 'echo x \"$@\"' x -n 5 --tee -- --foo").out,
            "[rank 0] x -n 5 --tee -- --foo\n");
  EXPECT_EQ(work.tutti("launch sh -c 'echo $RANK \"$@\"' x --foo").out, "[rank 0] 0 --foo\n");
}

// However far from the rank it is, and whatever it does about signals.
TEST(Launch, NothingThatARankHasStartedOutlivesAKilledLauncher) {
  for (const char* program :
       {"sleep 1000 & echo started $!; wait", "sh -c \"sleep 1000 & echo started \\$!; wait\" & wait",
        "(sleep 1000 & echo started $!); exec sleep 1000",
        "sh -c \"trap : TERM HUP INT; echo started \\$\\$; while :; do sleep 1; done\" & wait",
        "sleep 1000 & kill -STOP $!; echo started $!; wait"}) {
    Workplace work;
    const int pid = work.start(std::string("launch -n 2 -- sh -c '") + program + "'");
    for (int i = 0; i < 2000 && count(work.read("out.txt"), "\n") < 2; ++i) usleep(10'000);
    std::istringstream lines(work.read("out.txt"));
    std::set<int> started;
    int child = 0;
    for (std::string bracket, rank, word; lines >> bracket >> rank >> word >> child;) started.insert(child);
    ASSERT_EQ(started.size(), 2u) << program << ": " << work.read("err.txt");
    for (const int started_by_rank : started) EXPECT_TRUE(is_there(started_by_rank)) << program;
    kill(pid, SIGKILL);
    EXPECT_EQ(Workplace::wait(pid), 137);
    for (const int started_by_rank : started) EXPECT_TRUE(wait_for_end(started_by_rank)) << program;
  }
}

TEST(Launch, AutoIsOneRankPerCore) {
  Workplace work;
  EXPECT_EQ(work.tutti("launch -n auto -- true", "taskset -c 0").err.find("rank 1:"), std::string::npos);
  EXPECT_EQ(count(work.tutti("launch --nproc-per-node cpu -- sh -c 'echo $TUTTI_THREADS'").out, "] 1\n"),
            sysconf(_SC_NPROCESSORS_ONLN));
}

TEST(Launch, ASignalThatKillsARankIsNamedAndKept) {
  Workplace work;
  const Output output =
      work.tutti("launch -n 2 -- sh -c 'test $RANK = 1 || exec sleep 100; echo the reason >&2; kill -SEGV $$'");
  EXPECT_EQ(output.status, 128 + SIGSEGV);
  EXPECT_TRUE(says(output.err, "was killed by SIGSEGV\nits last lines on stderr:\n  the reason\n")) << output.err;
}

TEST(Launch, RestartsFindANewStore) {
  Workplace work;
  const Output output = work.tutti(
      "launch -n 2 --max-restarts 2 --run-id night -- sh -c 'echo $TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT "
      "$TUTTI_JOB_KEY; exit 3'");
  EXPECT_EQ(output.status, 3);
  std::set<std::string> keys;
  std::istringstream lines(output.out);
  for (std::string bracket, rank, run, restart, key; lines >> bracket >> rank >> run >> restart >> key;) {
    EXPECT_EQ(run, "night");
    keys.insert(restart + " " + key);
  }
  EXPECT_EQ(keys.size(), 3u) << output.out;
}

TEST(Launch, ARankThatIgnoresSignalsDoesNotOutliveAKilledLauncher) {
  Workplace work;
  const int pid =
      work.start("launch -n 2 -- sh -c 'trap \"\" TERM INT HUP; echo ready $$; while :; do sleep 0.05; done'");
  ASSERT_TRUE(wait_for_text(work, "out.txt", "[rank 0] ready ") && wait_for_text(work, "out.txt", "[rank 1] ready "));
  std::vector<int> ranks;
  std::istringstream words(work.read("out.txt"));
  for (std::string word; words >> word;) {
    if (word == "ready" && words >> word) ranks.push_back(std::stoi(word));
  }
  ASSERT_EQ(ranks.size(), 2u);
  kill(pid, SIGKILL);
  EXPECT_EQ(Workplace::wait(pid), 137);
  for (const int rank : ranks) EXPECT_TRUE(wait_for_end(rank)) << "rank " << rank << " was left behind";
}

TEST(Launch, PassesASignalOnOnceAndEndsWith130) {
  Workplace work;
  const int pid = work.start(
      "launch -n 2 -- sh -c 'trap \"echo caught; exit 130\" TERM; echo ready; while :; do sleep 0.05; done'");
  ASSERT_TRUE(wait_for_text(work, "out.txt", "[rank 0] ready") && wait_for_text(work, "out.txt", "[rank 1] ready"));
  kill(pid, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid), 130);
  EXPECT_EQ(count(work.read("out.txt"), "caught"), 2) << work.read("out.txt");
}

// Whoever plans memory for the ranks first may have threads by then.
TEST(Launch, ASignalEndsATrainingRunAfterItsStep) {
  Workplace work;
  write_tiny_run(work);
  const int pid = work.start(
      "train run.toml --run.name=run -n 2 --training.steps=100000 --validation.every=0 --checkpoint.every=0");
  ASSERT_TRUE(wait_for_text(work, "err.txt", "step 3/"));
  kill(pid, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid), 130) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("the same command goes on from there"), std::string::npos)
      << work.read("err.txt");
}

struct Wrong {
  const char* name;
  const char* arguments;
  const char* says;
};

class WrongLaunch : public testing::TestWithParam<Wrong> {};

TEST_P(WrongLaunch, IsExplained) {
  Workplace work;
  work.write("data.txt", "");
  const Output output =
      work.tutti(std::string("launch ") + GetParam().arguments, "unset TUTTI_JOB_KEY TUTTI_JOB_KEY_FILE;");
  EXPECT_EQ(output.status, 2) << output.err;
  EXPECT_TRUE(says(output.err, GetParam().says)) << output.err;
}

INSTANTIATE_TEST_SUITE_P(
    , WrongLaunch,
    testing::Values(Wrong{"NoProgram", "-n 2", "The program to start, behind --, is required"},
                    Wrong{"NothingBehindTheDashes", "-n 2 --", "is required"},
                    Wrong{"UnknownFlag", "-n 2 --max-restart 3 -- true",
                          "unknown flag '--max-restart'; did you mean '--max-restarts'?"},
                    Wrong{"NoSuchProgram", "-- nosuchprogram", "there is no program 'nosuchprogram' in PATH"},
                    Wrong{"NoSuchFile", "-- ./nosuchprogram", "there is no program './nosuchprogram'"},
                    Wrong{"NoProgramButAFile", "-- ./data.txt",
                          "'./data.txt' cannot be run; is it a program, and executable (chmod +x)?"},
                    Wrong{"RanksThatAreNone", "-n many -- true", "-n is 'many'; expected 1 to 4096, or auto or cpu"},
                    Wrong{"NoRanks", "-n 0 -- true", "-n is '0'; expected 1 to 4096"},
                    Wrong{"TeeWithoutFiles", "--tee -- true", "give --log-dir DIR, or leave out --tee"},
                    Wrong{"NodesWithoutAPlace", "--nnodes 2 -- true",
                          "--nnodes 2 needs --node-rank, 0 to 1, and --rdzv-endpoint HOST:PORT"},
                    Wrong{"NodesUpsideDown", "--nnodes 3:2 -- true",
                          "--nnodes is 3:2: the least number of nodes is above the most"},
                    Wrong{"NodesThatAreNone", "--nnodes 2:x -- true",
                          "--nnodes is 'x'; expected a number of nodes, or the least and the most: 2 or 2:4"},
                    Wrong{"NodeRankTooLarge", "--nnodes 2 --node-rank 2 --rdzv-endpoint 127.0.0.1:7000 -- true",
                          "--node-rank is 2, but --nnodes 2 leaves 0 to 1"},
                    Wrong{"EndpointWithoutPort", "--nnodes 2 --node-rank 0 --rdzv-endpoint localhost -- true",
                          "--rdzv-endpoint is 'localhost'; expected HOST:PORT with a port from 1 to 65535 that is free "
                          "on the host of node 0"},
                    Wrong{"EndpointThatNobodyKnows", "--nnodes 2 --node-rank 0 --rdzv-endpoint localhost:0 -- true",
                          "the port of --rdzv-endpoint is '0'; expected HOST:PORT"},
                    Wrong{"HostsWithoutAKey", "--nnodes 2 --node-rank 0 --rdzv-endpoint 192.0.2.1:7000 -- true",
                          "nodes that meet at 192.0.2.1:7000 need a job key"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutti::test

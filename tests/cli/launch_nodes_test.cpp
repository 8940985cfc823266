// Several launchers that make one job: on the loopback address, and in two network namespaces joined by a cable where
// the test may make them (as root).
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr const char* kKey = "export TUTTI_JOB_KEY=0123456789abcdef0123456789abcdef;";

// A port of 127.0.0.1 that was free a moment ago.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// One launcher per node, each in a folder of its own.
struct Nodes {
  explicit Nodes(int count, std::string host = "127.0.0.1")
      : works(static_cast<size_t>(count)), endpoint(host + ":" + std::to_string(free_port())) {}
  // `flags` are those of one node, `shell` stands before its command.
  void start(int node, const std::string& nnodes, const std::string& flags, const std::string& program,
             const std::string& shell = kKey) {
    pids.resize(works.size(), 0);
    pids[static_cast<size_t>(node)] =
        works[static_cast<size_t>(node)].start("launch --nnodes " + nnodes + " --node-rank " + std::to_string(node) +
                                                   " --rdzv-endpoint " + endpoint + " " + flags + " -- " + program,
                                               shell);
  }
  int wait(int node) { return Workplace::wait(pids[static_cast<size_t>(node)]); }
  std::string out(int node) const { return works[static_cast<size_t>(node)].read("out.txt"); }
  std::string err(int node) const { return works[static_cast<size_t>(node)].read("err.txt"); }
  bool wait_for_out(int node, const std::string& part) const {
    for (int i = 0; i < 2000 && !says(out(node), part); ++i) usleep(10'000);
    return says(out(node), part);
  }
  std::vector<Workplace> works;
  std::string endpoint;
  std::vector<int> pids;
};

TEST(LaunchNodes, RanksAreNumberedByNodeThenLocally) {
  Nodes nodes(2);
  const std::string program =
      "sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $TORCHELASTIC_RUN_ID "
      "$MASTER_ADDR'";
  nodes.start(1, "2", "-n 1 --run-id uneven", program);
  nodes.start(0, "2", "-n 2 --run-id uneven", program);
  EXPECT_EQ(nodes.wait(0), 0) << nodes.err(0);
  EXPECT_EQ(nodes.wait(1), 0) << nodes.err(1);
  EXPECT_TRUE(says(nodes.out(0), "[rank 0] 0/3 0/2 0/2 uneven 127.0.0.1\n")) << nodes.out(0);
  EXPECT_TRUE(says(nodes.out(0), "[rank 1] 1/3 1/2 0/2 uneven 127.0.0.1\n")) << nodes.out(0);
  EXPECT_EQ(nodes.out(1), "[rank 2] 2/3 0/1 1/2 uneven 127.0.0.1\n");
}

TEST(LaunchNodes, OneHostNeedsNoKey) {
  Nodes nodes(2);
  for (const int node : {0, 1})
    nodes.start(node, "2", "-n 1", "sh -c 'test -z \"$TUTTI_JOB_KEY\"'", "unset TUTTI_JOB_KEY TUTTI_JOB_KEY_FILE;");
  EXPECT_EQ(nodes.wait(0), 0) << nodes.err(0);
  EXPECT_EQ(nodes.wait(1), 0) << nodes.err(1);
}

TEST(LaunchNodes, AFailureOnOneNodeIsToldOnAllWithItsLastLines) {
  Nodes nodes(3);
  for (const int node : {0, 1, 2})
    nodes.start(node, "3", "-n 2", "sh -c 'test $RANK = 3 || exec sleep 100; echo the reason >&2; exit 9'");
  for (const int node : {0, 1, 2}) {
    EXPECT_EQ(nodes.wait(node), 9) << nodes.err(node);
    EXPECT_TRUE(says(nodes.err(node), "rank 3 (pid ")) << nodes.err(node);
    EXPECT_TRUE(says(nodes.err(node), ") of node 1 (")) << nodes.err(node);
    EXPECT_TRUE(says(nodes.err(node), "exited with status 9\nits last lines on stderr:\n  the reason\n"))
        << nodes.err(node);
  }
}

TEST(LaunchNodes, AllNodesStartAgainTogether) {
  Nodes nodes(2);
  const std::string program =
      "sh -c 'echo attempt $TORCHELASTIC_RESTART_COUNT $MASTER_PORT; test $TORCHELASTIC_RESTART_COUNT = 1 || test "
      "$RANK = 0 || exit 3; "
      "test $TORCHELASTIC_RESTART_COUNT = 1 || exec sleep 100'";
  for (const int node : {0, 1}) nodes.start(node, "2", "-n 1 --max-restarts 1", program);
  std::set<std::string> ports;
  for (const int node : {0, 1}) {
    EXPECT_EQ(nodes.wait(node), 0) << nodes.err(node);
    EXPECT_TRUE(says(nodes.err(node), "starting all ranks again: restart 1 of 1\n")) << nodes.err(node);
    std::istringstream lines(nodes.out(node));
    for (std::string bracket, rank, word, attempt, port; lines >> bracket >> rank >> word >> attempt >> port;)
      ports.insert(attempt + ":" + port);
  }
  EXPECT_EQ(ports.size(), 2u);
}

TEST(LaunchNodes, FewerNodesStartAfterAQuietTime) {
  Nodes nodes(2);
  for (const int node : {0, 1}) nodes.start(node, "2:4", "-n 1", "sh -c 'echo $WORLD_SIZE'");
  EXPECT_EQ(nodes.wait(0), 0) << nodes.err(0);
  EXPECT_EQ(nodes.wait(1), 0) << nodes.err(1);
  EXPECT_EQ(nodes.out(1), "[rank 1] 2\n");
}

TEST(LaunchNodes, ASignalToOneLauncherEndsTheRanksOfAll) {
  Nodes nodes(2);
  for (const int node : {0, 1}) nodes.start(node, "2", "-n 1", "sh -c 'echo ready; exec sleep 100'");
  ASSERT_TRUE(nodes.wait_for_out(0, "ready") && nodes.wait_for_out(1, "ready")) << nodes.err(0) << nodes.err(1);
  kill(nodes.pids[1], SIGINT);
  EXPECT_EQ(nodes.wait(0), 130) << nodes.err(0);
  EXPECT_EQ(nodes.wait(1), 130) << nodes.err(1);
}

TEST(LaunchNodes, AKilledLauncherOfNodeZeroIsNoticed) {
  Nodes nodes(2);
  for (const int node : {0, 1}) nodes.start(node, "2", "-n 1", "sh -c 'echo ready; exec sleep 100'");
  ASSERT_TRUE(nodes.wait_for_out(0, "ready") && nodes.wait_for_out(1, "ready")) << nodes.err(0) << nodes.err(1);
  kill(nodes.pids[0], SIGKILL);
  EXPECT_EQ(nodes.wait(0), 137);
  EXPECT_EQ(nodes.wait(1), 1);
  EXPECT_TRUE(says(nodes.err(1), "the launcher of node 0 (") && says(nodes.err(1), ") no longer answers: "))
      << nodes.err(1);
}

TEST(LaunchNodes, AKilledLauncherOfAnotherNodeIsNamedOnTheRest) {
  Nodes nodes(3);
  for (const int node : {0, 1, 2}) nodes.start(node, "3", "-n 1", "sh -c 'echo ready; exec sleep 100'");
  for (const int node : {0, 1, 2}) ASSERT_TRUE(nodes.wait_for_out(node, "ready")) << nodes.err(node);
  kill(nodes.pids[1], SIGKILL);
  EXPECT_EQ(nodes.wait(1), 137);
  for (const int node : {0, 2}) {
    EXPECT_EQ(nodes.wait(node), 1);
    EXPECT_TRUE(says(nodes.err(node), "node 1 (") && says(nodes.err(node), ") has not given a sign of life for 8 s\n"))
        << nodes.err(node);
  }
}

TEST(LaunchNodes, ContradictionsAreToldOnAllNodes) {
  Nodes nodes(2);
  nodes.start(0, "2", "-n 1 --max-restarts 1", "true");
  nodes.start(1, "2", "-n 1 --max-restarts 2", "true");
  for (const int node : {0, 1}) {
    EXPECT_EQ(nodes.wait(node), 2);
    EXPECT_TRUE(says(nodes.err(node), "--max-restarts is 1 on node 0 (") && says(nodes.err(node), "but 2 on node 1 ("))
        << nodes.err(node);
  }
}

TEST(LaunchNodes, ANodeRankIsTakenOnce) {
  Nodes nodes(3);
  nodes.start(0, "3", "-n 1 --rdzv-timeout 5", "true");
  nodes.start(1, "3", "-n 1", "true");
  // The store has the record of one; the other one gives up at once.
  nodes.pids[2] =
      nodes.works[2].start("launch --nnodes 3 --node-rank 1 --rdzv-endpoint " + nodes.endpoint + " -- true", kKey);
  std::set<int> statuses = {nodes.wait(1), nodes.wait(2)};
  EXPECT_EQ(statuses, (std::set<int>{1, 2})) << nodes.err(1) << nodes.err(2);
  EXPECT_TRUE(says(nodes.err(1) + nodes.err(2), "--node-rank 1 belongs to node 1 (")) << nodes.err(1) << nodes.err(2);
  EXPECT_EQ(nodes.wait(0), 1);
  EXPECT_TRUE(says(nodes.err(0), "only 2 of 3 nodes came to 127.0.0.1:") && says(nodes.err(0), " within 5 s: 0, 1\n"))
      << nodes.err(0);
}

TEST(LaunchNodes, AnotherKeyIsRefused) {
  Nodes nodes(2);
  nodes.start(0, "2", "-n 1 --rdzv-timeout 3", "true");
  nodes.start(1, "2", "-n 1", "true", "export TUTTI_JOB_KEY=another-key-of-this-job;");
  EXPECT_EQ(nodes.wait(1), 2);
  EXPECT_TRUE(says(nodes.err(1), "job key")) << nodes.err(1);
  EXPECT_EQ(nodes.wait(0), 1);
}

TEST(LaunchNodes, AProgramThatIsMissingOnOneNodeEndsAll) {
  Nodes nodes(2);
  nodes.works[0].write("program.sh", "#!/bin/sh\nexec sleep 100\n");
  nodes.works[1].write("program.sh", "#!/no/such/interpreter\n");
  for (auto& work : nodes.works)
    std::filesystem::permissions(work.folder() / "program.sh", std::filesystem::perms::owner_all);
  for (const int node : {0, 1}) nodes.start(node, "2", "-n 1", "./program.sh");
  for (const int node : {0, 1}) {
    EXPECT_EQ(nodes.wait(node), 1) << nodes.err(node);
    EXPECT_TRUE(says(nodes.err(node), "rank 1 (pid ")) << nodes.err(node);
    EXPECT_TRUE(says(nodes.err(node), "cannot start './program.sh': No such file or directory")) << nodes.err(node);
  }
}

// Two hosts as far as the network and the ranks can tell; made by root only.
class Namespaces {
 public:
  explicit Namespaces(const std::string& stem) : a_(stem + "a"), b_(stem + "b") {
    const std::string text = "ip netns add " + a_ + " && ip netns add " + b_ + " && ip link add " + a_ + " netns " +
                             a_ + " type veth peer name " + b_ + " netns " + b_ + " && ip -n " + a_ +
                             " addr add 10.213.7.1/24 dev " + a_ + " && ip -n " + b_ + " addr add 10.213.7.2/24 dev " +
                             b_ + " && ip -n " + a_ + " link set " + a_ + " up && ip -n " + b_ + " link set " + b_ +
                             " up && ip -n " + a_ + " link set lo up && ip -n " + b_ + " link set lo up";
    made_ = std::system(("(" + text + ") > /dev/null 2>&1").c_str()) == 0;
  }
  ~Namespaces() {
    const std::string text = "ip netns del " + a_ + "; ip netns del " + b_;
    [[maybe_unused]] const int status = std::system(("(" + text + ") > /dev/null 2>&1").c_str());
  }
  bool made() const { return made_; }
  // To stand before a command "exec PROGRAM ...".
  std::string enter(int node) const { return "exec ip netns exec " + (node == 0 ? a_ : b_) + " bash -c '\"$@\"' host"; }

 private:
  std::string a_, b_;
  bool made_ = false;
};

constexpr const char* kTrain =
    TUTTI_BINARY_DIR "/tutti train " TUTTI_SOURCE_DIR
                     "/configs/quickstart.toml --quiet --data.tokenizer=bpe:300 --training.steps=3 "
                     "--training.global_batch_tokens=512 --data.sequence_length=64 "
                     "--data.validation_fraction=0.05 --lr_scheduler.warmup_steps=1 --validation.every=10 "
                     "--validation.steps=1 --validation.sample_tokens=8 --checkpoint.every=3 "
                     "--run.name=nodes --data ";

// Where namespaces cannot be made, the two nodes are two launchers on the loopback address of this one.
TEST(LaunchNodes, TrainingOverTwoHostsOrTheLoopbackAddressWithoutRootHasTheSameBits) {
  Workplace alone;
  const std::string corpus = alone.write("corpus.jsonl", synthetic_corpus(20, 200));
  const std::string train = kTrain + corpus;
  ASSERT_EQ(alone.tutti(train.substr(train.find(" train") + 1)).status, 0) << alone.read("err.txt");
  const Namespaces hosts("tt" + std::to_string(getpid() % 100000));
  RecordProperty("hosts", hosts.made() ? "two network namespaces" : "loopback");
  Nodes nodes(2, hosts.made() ? "10.213.7.1" : "127.0.0.1");
  for (const int node : {0, 1})
    nodes.start(node, "2", "-n 2", train, std::string(kKey) + (hosts.made() ? hosts.enter(node) : ""));
  EXPECT_EQ(nodes.wait(0), 0) << nodes.err(0);
  EXPECT_EQ(nodes.wait(1), 0) << nodes.err(1);
  ASSERT_FALSE(alone.metric("nodes", "loss_hex").empty());
  EXPECT_EQ(nodes.works[0].metric("nodes", "loss_hex"), alone.metric("nodes", "loss_hex"));
}

}  // namespace
}  // namespace tutti::test

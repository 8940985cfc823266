// Launchers that wait for each other: for the plan, and for news. Whoever dies or falls silent in between is named, and
// nobody waits for ever.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/job/launch/node_log.h"
#include "tutti/job/launch/node_meeting.h"
#include "tutti/job/launch/node_news.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/prefix_store.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

NodeMeeting::Plan plan_of(int nodes, int node) {
  NodeMeeting::Plan plan;
  plan.first.node = node;
  plan.first.nodes = nodes;
  for (int n = 0; n < nodes; ++n)
    plan.nodes.push_back({.rank = n, .local_ranks = 1, .host = "host" + std::to_string(n), .pid = 100 + n});
  return plan;
}

// The items that arrive until `done` says that they are enough, or half a minute is over.
template <class Done>
std::vector<NewsItem> news_until(NodeNews& news, const Done& done) {
  std::vector<NewsItem> all;
  const auto end = Clock::now() + seconds(30);
  while (!done(all) && Clock::now() < end) {
    pollfd there{.fd = news.fd(), .events = POLLIN, .revents = 0};
    poll(&there, 1, 100);
    for (NewsItem& item : news.take()) all.push_back(std::move(item));
  }
  return all;
}

NewsItem notice(int node, const std::string& text) {
  return {.kind = NewsItem::Kind::notice, .node = node, .failure = {}, .notice = text};
}

template <class Fn>
std::string environment_error_of(const Fn& fn) {
  try {
    fn();
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "no error";
}

// Whoever counted the news first and died then left a number that all readers waited for.
TEST(NodeLog, NoWriterLeavesANumberThatReadersWaitFor) {
  const auto store = std::make_shared<HashStore>();
  store->add("0/count", 1);
  NodeLog writer(store->clone(), 0, "1"), reader(store->clone(), 0, "0");
  writer.write(notice(1, "I am here"));
  const auto item = reader.read(seconds(0));
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->notice, "I am here");
  EXPECT_FALSE(reader.read(seconds(0)).has_value());
}

TEST(NodeLog, ReadersFollowWhateverMomentAWriterIsKilledAt) {
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port(), .job_key = ""});
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      NodeLog log(std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port(), .job_key = ""}), round, "1");
      for (int i = 0;; ++i) log.write(notice(1, std::to_string(i)));
    }
    NodeLog reader(store->clone(), round, "0");
    for (int i = 0; i <= round; ++i) EXPECT_EQ(reader.read(seconds(30)).value().notice, std::to_string(i));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    NodeLog(store->clone(), round, "2").write(notice(2, "after it"));
    std::string last;
    while (last != "after it") {
      const auto item = reader.read(seconds(5));
      ASSERT_TRUE(item.has_value()) << "behind '" << last << "' is a number that nobody fills";
      last = item->notice;
    }
  }
}

TEST(NodeLog, WritersAtOnceLoseAndDoubleNothing) {
  const auto store = std::make_shared<HashStore>();
  constexpr int kWriters = 4, kItems = 50;
  {
    std::vector<std::jthread> threads;
    for (int w = 0; w < kWriters; ++w) {
      threads.emplace_back([&, w] {
        NodeLog log(store->clone(), 0, std::to_string(w));
        for (int i = 0; i < kItems; ++i) log.write(notice(0, "the same of all"));
      });
    }
  }
  NodeLog reader(store->clone(), 0, "reader");
  int count = 0;
  while (reader.read(seconds(0))) ++count;
  EXPECT_EQ(count, kWriters * kItems);
}

// A store that carries a change out, and says that the answer did not come in time.
class AnswersTooLate : public PrefixStore {
 public:
  explicit AnswersTooLate(std::shared_ptr<Store> store) : PrefixStore("p", std::move(store)) {}
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    std::string there = PrefixStore::compare_set(key, expected, desired);
    if (--late_ >= 0) throw StoreTimeout("the server did not answer in time");
    return there;
  }
  int late_ = 1;
};

TEST(NodeLog, ASecondTryDoesNotWriteTwice) {
  const auto store = std::make_shared<HashStore>();
  NodeLog writer(std::make_shared<AnswersTooLate>(store), 0, "1");
  EXPECT_THROW(writer.write(notice(1, "once")), StoreTimeout);
  writer.write(notice(1, "once"));
  writer.write(notice(1, "and another"));
  NodeLog reader(std::make_shared<PrefixStore>("p", store), 0, "0");
  EXPECT_EQ(reader.read(seconds(0)).value().notice, "once");
  EXPECT_EQ(reader.read(seconds(0)).value().notice, "and another");
  EXPECT_FALSE(reader.read(seconds(0)).has_value());
}

TEST(NodeNews, ANodeThatDiedBetweenCountAndNewsIsLostAndTheOthersGoOn) {
  const auto store = std::make_shared<HashStore>();
  const NodeMeeting::Plan plan = plan_of(2, 0);
  const NodeOptions options{.lost_after = milliseconds(300)};
  store->add("0/count", 1);
  NodeNews news(store->clone(), plan, options);
  const auto items =
      news_until(news, [](const auto& all) { return !all.empty() && all.back().kind == NewsItem::Kind::ended; });
  ASSERT_EQ(items.size(), 2u);
  EXPECT_TRUE(says(items[0].failure.text, "node 1 (host1, launcher pid 101) has not given a sign of life"))
      << items[0].failure.text;
  EXPECT_EQ(items[1].node, 1);
}

// Only what is written gets no answer.
TEST(NodeNews, ThatTheStoreDoesNotConfirmCutsTheNodeOff) {
  const auto table = std::make_shared<HashStore>();
  const NodeMeeting::Plan plan = plan_of(2, 1);
  const NodeOptions options;
  NodeNews news(std::make_shared<AnswersTooLate>(table), plan, options);
  EXPECT_FALSE(news.is_cut_off());
  news.append({.kind = NewsItem::Kind::ended, .node = 1, .failure = {}});
  EXPECT_TRUE(news.is_cut_off());
  const auto lost = [](const auto& all) {
    return std::any_of(all.begin(), all.end(),
                       [](const NewsItem& item) { return item.failure.kind == LaunchFailure::Kind::lost; });
  };
  const auto items = news_until(news, lost);
  ASSERT_TRUE(lost(items));
  for (const NewsItem& item : items) {
    if (item.failure.kind != LaunchFailure::Kind::lost) continue;
    EXPECT_EQ(item.failure.text, "the launcher of node 0 (host0) no longer answers: the server did not answer in time");
  }
  // It gives no sign of life any more, by which node 0 knows.
  const auto beat = [&] { return table->check({"p/0/beat/1"}) ? table->get("p/0/beat/1") : ""; };
  std::string before = beat();
  for (int still = 0; still < 10;) {
    std::this_thread::sleep_for(milliseconds(100));
    still = std::exchange(before, beat()) == before ? still + 1 : 0;
  }
}

// A server in a process of its own, which can be stopped. Its port comes through a pipe.
struct ServerProcess {
  ServerProcess() {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
      TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
      const int mine = server.port();
      [[maybe_unused]] const ssize_t put = write(fds[1], &mine, sizeof mine);
      while (true) pause();
    }
    EXPECT_EQ(read(fds[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    close(fds[0]);
    close(fds[1]);
  }
  ~ServerProcess() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid = -1;
  int port = 0;
};

LaunchOptions node_one(int port, milliseconds join, milliseconds lost_after) {
  return {.nodes = {.min_nodes = 2,
                    .max_nodes = 2,
                    .node_rank = 1,
                    .host = "127.0.0.1",
                    .port = port,
                    .join = join,
                    .lost_after = lost_after}};
}

// Both waits at once, because each takes the time after which a server counts as gone.
TEST(NodeMeeting, AStoreThatStopsAnsweringIsNamedWhereverALauncherWaits) {
  const ServerProcess server;
  const LaunchOptions options = node_one(server.port, seconds(300), seconds(8));
  const NodeMeeting::Plan plan = plan_of(2, 1);
  const auto connect = [&] {
    auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port, .timeout = seconds(3), .job_key = ""});
    return store;
  };
  NodeNews news(connect(), plan, options.nodes);
  std::string said;
  std::jthread waiting([&] {
    NodeMeeting meeting(options);
    NodeMeeting::Plan none;
    said = environment_error_of([&] { meeting.meet(0, 2, [] { return true; }, none); });
  });
  const auto store = connect();
  store->wait({"0/node/000001", "0/beat/1"});
  const auto begin = Clock::now();
  kill(server.pid, SIGSTOP);
  const auto items = news_until(news, [](const auto& all) { return !all.empty(); });
  waiting.join();
  EXPECT_LT(Clock::now() - begin, seconds(20));
  ASSERT_FALSE(items.empty());
  EXPECT_TRUE(news.is_cut_off());
  EXPECT_TRUE(
      says(items[0].failure.text, "the launcher of node 0 (host0) no longer answers: store at tcp://127.0.0.1:"))
      << items[0].failure.text;
  EXPECT_TRUE(says(
      said, "node 1: the launcher of node 0 at 127.0.0.1:" + std::to_string(server.port) + " is gone: store at tcp://"))
      << said;
  EXPECT_TRUE(says(said, "the server did not answer in time")) << said;
}

TEST(NodeMeeting, APlanThatNeverComesHasADeadlineWithTheRemedy) {
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
  const LaunchOptions options = node_one(server.port(), milliseconds(200), milliseconds(300));
  NodeMeeting meeting(options);
  NodeMeeting::Plan plan;
  const std::string said = environment_error_of([&] { meeting.meet(0, 2, [] { return true; }, plan); });
  EXPECT_TRUE(says(said, "node 1: a store answers at 127.0.0.1:" + std::to_string(server.port()) +
                             ", but the launcher of node 0 has not said within "))
      << said;
  EXPECT_TRUE(says(said, " s there who takes part, nor that it is there; see whether it still runs")) << said;
  EXPECT_TRUE(says(said, "start all nodes again, with a longer --rdzv-timeout on node 0")) << said;
}

// Node 0 knows for how long it waits for the others; whoever leaves earlier would be missing in its plan.
TEST(NodeMeeting, TheOthersWaitAsLongAsNodeZeroSays) {
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
  const LaunchOptions options = node_one(server.port(), milliseconds(100), milliseconds(100));
  TcpStore store({.port = server.port(), .job_key = ""});
  const auto record = [&](int join_ms) {
    store.set(
        "0/node/000000",
        "{\"host\": \"a\", \"join-ms\": " + std::to_string(join_ms) +
            ", \"local\": 1, \"max-restarts\": 0, \"nnodes\": \"2\", \"node\": 0, \"pid\": 12, \"run-id\": \"\"}");
  };
  record(1500);
  {
    NodeMeeting meeting(options);
    NodeMeeting::Plan plan;
    const auto begin = Clock::now();
    const std::string said = environment_error_of([&] { meeting.meet(0, 2, [] { return true; }, plan); });
    EXPECT_GE(Clock::now() - begin, milliseconds(1500));
    EXPECT_FALSE(says(said, "nor that it is there")) << said;
  }
}

}  // namespace
}  // namespace tutti::comm

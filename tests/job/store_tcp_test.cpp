// What only the TCP store has: many clients, keys, addresses, and peers that go away.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <latch>
#include <thread>

#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/peer_uid.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

const std::string kKey = "0123456789abcdef0123456789abcdef";
const std::string kOtherKey = "fedcba9876543210fedcba9876543210";

template <class E, class Fn>
std::string message_of(const Fn& fn) {
  try {
    fn();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// True when it becomes true within a time that even a busy machine keeps.
template <class Fn>
bool becomes_true(const Fn& fn) {
  const auto end = Clock::now() + seconds(20);
  while (!fn()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

UniqueFd connect_raw(int port) {
  std::string error;
  return try_connect("127.0.0.1", port, StoreDeadline(seconds(20)), error);
}

TEST(TcpStore, TwoThousandClientsConnectAndMeet) {
  constexpr int kClients = 2000;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = kKey});
  std::latch all_connected(kClients);
  std::atomic<int> met = 0;
  const auto begin = Clock::now();
  Clock::time_point connected;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&] {
      TcpStore store({.port = server.port(), .job_key = kKey});
      all_connected.arrive_and_wait();
      store.barrier("all", kClients);
      ++met;
    });
  }
  all_connected.wait();
  connected = Clock::now();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, kClients);
  RecordProperty("connect_ms", static_cast<int>((connected - begin) / milliseconds(1)));
  RecordProperty("barrier_ms", static_cast<int>((Clock::now() - connected) / milliseconds(1)));
  EXPECT_TRUE(becomes_true([&] { return server.num_clients() == 0; }));
  EXPECT_EQ(server.num_refused(), 0);
}

TEST(TcpStore, AWaitingHandleDoesNotStopItsClone) {
  TcpStoreServer server({.job_key = ""});
  TcpStore store({.port = server.port(), .job_key = ""});
  auto other = store.clone();
  auto value = std::async(std::launch::async, [&] { return store.get("k", seconds(60)); });
  // While the handle waits, a second call on it has to wait too, until its own deadline.
  ASSERT_TRUE(becomes_true([&] {
    store.set_timeout(milliseconds(1));
    try {
      store.set("other", "");
      return false;
    } catch (const StoreTimeout& error) {
      return contains(error.what(), "another call on the same handle");
    }
  }));
  other->set("k", "v");
  EXPECT_EQ(value.get(), "v");
}

TEST(JobKey, IsRandomAndLongEnough) {
  EXPECT_EQ(make_job_key().size(), 64u);
  EXPECT_NE(make_job_key(), make_job_key());
  EXPECT_THROW(check_job_key("too short"), UsageError);
}

TEST(JobKey, ProofsDependOnKeySideAndBothNonces) {
  const Nonce a = make_nonce(), b = make_nonce();
  const Proof proof = make_proof(kKey, Side::kClient, a, b);
  EXPECT_TRUE(is_same_proof(proof, make_proof(kKey, Side::kClient, a, b)));
  EXPECT_FALSE(is_same_proof(proof, make_proof(kOtherKey, Side::kClient, a, b)));
  EXPECT_FALSE(is_same_proof(proof, make_proof(kKey, Side::kServer, a, b)));
  EXPECT_FALSE(is_same_proof(proof, make_proof(kKey, Side::kClient, b, a)));
}

TEST(JobKey, AWrongKeyIsRefusedOnBothSides) {
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = kKey});
  const std::string text = message_of<UsageError>([&] { TcpStore({.port = server.port(), .job_key = kOtherKey}); });
  EXPECT_TRUE(contains(text, "refused this client: it has another job key")) << text;
  EXPECT_TRUE(contains(text, "TUTTI_JOB_KEY")) << text;
  ASSERT_TRUE(becomes_true([&] { return server.num_refused() == 1; }));
  EXPECT_TRUE(contains(server.last_refusal(), "127.0.0.1:")) << server.last_refusal();
  EXPECT_TRUE(contains(server.last_refusal(), "it has another job key")) << server.last_refusal();
  TcpStore good({.port = server.port(), .job_key = kKey});
  good.set("k", "v");
  EXPECT_EQ(good.get("k"), "v");
}

TEST(JobKey, OneSideWithoutAKeyIsAnError) {
  TcpStoreServer with({.bind_address = "127.0.0.1", .job_key = kKey});
  EXPECT_TRUE(contains(message_of<UsageError>([&] { TcpStore({.port = with.port(), .job_key = ""}); }),
                       "the server needs a job key and this process has none"));
  TcpStoreServer without({.job_key = ""});
  EXPECT_TRUE(contains(message_of<UsageError>([&] { TcpStore({.port = without.port(), .job_key = kKey}); }),
                       "the server does not ask for one"));
}

TEST(JobKey, AServerThatOnlyPretendsToKnowTheKeyIsRefused) {
  const UniqueFd listener = listen_on("127.0.0.1", 0);
  std::thread impostor([&] {
    pollfd waited{.fd = listener.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&waited, 1, 20'000), 1);
    const UniqueFd client(accept(listener.get(), nullptr, nullptr));
    char bytes[256];
    ASSERT_GT(recv(client.get(), bytes, sizeof bytes, 0), 0);
    const std::string nonce(32, 'n');
    std::string frame = WireWriter(WireStatus::kOk).put_bytes(nonce).put_u8(1).finish();
    ASSERT_GT(send(client.get(), frame.data(), frame.size(), MSG_NOSIGNAL), 0);
    ASSERT_GT(recv(client.get(), bytes, sizeof bytes, 0), 0);
    frame = WireWriter(WireStatus::kOk).put_bytes(nonce).finish();
    ASSERT_GT(send(client.get(), frame.data(), frame.size(), MSG_NOSIGNAL), 0);
  });
  const std::string text =
      message_of<UsageError>([&] { TcpStore({.port = local_port(listener.get()), .job_key = kKey}); });
  EXPECT_TRUE(contains(text, "the server does not know the job key")) << text;
  impostor.join();
}

TEST(JobKey, NothingIsAnsweredBeforeTheProof) {
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = kKey});
  const UniqueFd client = connect_raw(server.port());
  const std::string frame = WireWriter(WireOp::kSet).put_bytes("k").put_bytes("v").finish();
  ASSERT_EQ(send(client.get(), frame.data(), frame.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
  ASSERT_TRUE(becomes_true([&] { return server.num_refused() == 1; }));
  EXPECT_TRUE(contains(server.last_refusal(), "did not greet")) << server.last_refusal();
  TcpStore good({.port = server.port(), .job_key = kKey});
  EXPECT_EQ(good.num_keys(), 0);
}

TEST(JobKey, WithoutOneTheServerListensOnLoopbackOnly) {
  const std::string text =
      message_of<UsageError>([] { TcpStoreServer({.bind_address = "0.0.0.0", .port = 0, .job_key = ""}); });
  EXPECT_TRUE(contains(text, "listening on 0.0.0.0:0 needs a job key; set TUTTI_JOB_KEY")) << text;
  TcpStoreServer server({.job_key = kKey});
  TcpStore by_name({.host = "localhost", .port = server.port(), .job_key = kKey});
  by_name.set("k", "v");
}

TEST(TcpStoreServer, ASecondBindNamesAddressAndOwner) {
  TcpStoreServer server({.job_key = ""});
  const std::string text =
      message_of<EnvironmentError>([&] { TcpStoreServer({.port = server.port(), .job_key = ""}); });
  EXPECT_TRUE(contains(text, fmt::format("127.0.0.1:{}: Address already in use by pid {} (", server.port(), getpid())))
      << text;
}

TEST(TcpStore, AServerThatGoesAwayIsNamed) {
  auto server = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.job_key = ""});
  TcpStore store({.port = server->port(), .job_key = ""});
  const std::string address = fmt::format("tcp://127.0.0.1:{}", server->port());
  EXPECT_EQ(store.address(), address);
  auto waiting = std::async(std::launch::async, [&] { return message_of<EnvironmentError>([&] { store.get("k"); }); });
  ASSERT_TRUE(becomes_true([&] { return server->num_clients() == 1; }));
  server.reset();
  const std::string text = waiting.get();
  EXPECT_TRUE(contains(text, address + ": the server closed the connection during get of 'k'")) << text;
  EXPECT_TRUE(contains(message_of<EnvironmentError>([&] { store.set("k", "v"); }), "the connection broke earlier"));
}

TEST(TcpStore, WaitsForAServerThatStartsLater) {
  int port = 0;
  {
    TcpStoreServer probe({.job_key = ""});
    port = probe.port();
  }
  auto store = std::async(std::launch::async, [&] {
    TcpStore late({.port = port, .job_key = ""});
    late.set("k", "v");
  });
  std::this_thread::sleep_for(milliseconds(20));
  TcpStoreServer server({.port = port, .job_key = ""});
  store.get();
}

TEST(TcpStore, ADeadlineWithoutServerNamesAddressAndReason) {
  int port = 0;
  {
    TcpStoreServer probe({.job_key = ""});
    port = probe.port();
  }
  const std::string text =
      message_of<StoreTimeout>([&] { TcpStore({.port = port, .timeout = milliseconds(400), .job_key = ""}); });
  EXPECT_TRUE(contains(text, fmt::format("tcp://127.0.0.1:{}: nobody answered for 0.", port))) << text;
  EXPECT_TRUE(contains(text, "Connection refused")) << text;
  EXPECT_THROW(TcpStore({.port = 0, .job_key = ""}), UsageError);
  EXPECT_THROW(TcpStore({.host = "", .port = 1, .job_key = ""}), UsageError);
}

TEST(TcpStoreServer, AClientThatVanishesAtABarrierIsNotCounted) {
  TcpStoreServer server({.job_key = ""});
  const UniqueFd client = connect_raw(server.port());
  const Nonce nonce = make_nonce();
  std::string frames = WireWriter(WireOp::kHello).put_bytes({nonce.data(), nonce.size()}).put_u8(0).finish();
  frames += WireWriter(WireOp::kBarrier).put_bytes("b").put_i64(2).put_i64(100'000).finish();
  ASSERT_EQ(send(client.get(), frames.data(), frames.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frames.size()));
  TcpStore store({.port = server.port(), .job_key = ""});
  // It is there, so that a barrier of another size is an error.
  ASSERT_TRUE(becomes_true([&] {
    try {
      store.barrier("b", 3, milliseconds(0));
    } catch (const StoreTimeout&) {
      return false;
    } catch (const UsageError&) {
      return true;
    }
    return false;
  }));
  shutdown(client.get(), SHUT_RDWR);
  ASSERT_TRUE(becomes_true([&] { return server.num_clients() == 1; }));
  EXPECT_TRUE(contains(message_of<StoreTimeout>([&] { store.barrier("b", 2, milliseconds(0)); }), "1 of 2"));
}

TEST(TcpStoreServer, AnOversizedAnnouncementIsRefusedBeforeItIsStored) {
  TcpStoreServer server({.job_key = ""});
  const UniqueFd client = connect_raw(server.port());
  const Nonce nonce = make_nonce();
  std::string frames = WireWriter(WireOp::kHello).put_bytes({nonce.data(), nonce.size()}).put_u8(0).finish();
  frames += std::string("\xff\xff\xff\x7f\x01\x03\x00\x00", 8);
  ASSERT_EQ(send(client.get(), frames.data(), frames.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frames.size()));
  std::string answer;
  char bytes[512];
  pollfd waited{.fd = client.get(), .events = POLLIN, .revents = 0};
  while (poll(&waited, 1, 20'000) == 1) {
    const ssize_t count = recv(client.get(), bytes, sizeof bytes, 0);
    if (count <= 0) break;
    answer.append(bytes, static_cast<size_t>(count));
  }
  EXPECT_TRUE(contains(answer, "announced a request of 2147483647 bytes")) << answer;
}

// The greeting and a change in one go, so that the client need not be there when they are read.
std::string changes_in_one_go() {
  const Nonce nonce = make_nonce();
  return WireWriter(WireOp::kHello).put_bytes({nonce.data(), nonce.size()}).put_u8(0).finish() +
         WireWriter(WireOp::kSet).put_bytes("forged").put_bytes("v").finish();
}

TEST(TcpStoreServer, NamesOfKeysCommandNoTerminal) {
  TcpStoreServer server({.job_key = ""});
  TcpStore store({.port = server.port(), .job_key = ""});
  const std::string key = "k\x1b[2J\x9b";
  store.set(key, "no number");
  std::string said;
  try {
    store.add(key, 1);
  } catch (const UsageError& error) {
    said = error.what();
  }
  EXPECT_TRUE(contains(said, "k\\x1b[2J")) << said;
  EXPECT_FALSE(contains(said, "\x1b")) << said;
}

// Left out where this process cannot become another user; tests/CMakeLists.txt finds that out.
TEST(StoreAndOtherUsers, OnlyItsOwnUserIsServedWithoutAKey) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    for (const bool stays : {true, false}) {
      TcpStoreServer server({.bind_address = address, .job_key = ""});
      const std::string frames = changes_in_one_go();
      std::string error;
      const pid_t child = fork();
      if (child == 0) {
        if (setuid(65534) != 0) _exit(2);
        const UniqueFd client = try_connect(address, server.port(), StoreDeadline(seconds(20)), error);
        if (send(client.get(), frames.data(), frames.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frames.size()))
          _exit(3);
        char byte;
        while (stays && recv(client.get(), &byte, 1, 0) > 0) {
        }
        pollfd waited{.fd = client.get(), .events = POLLIN, .revents = 0};
        if (stays) poll(&waited, 1, 20'000);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0) << address;
      ASSERT_TRUE(becomes_true([&] { return server.num_refused() == 1; }));
      if (stays) {
        EXPECT_TRUE(contains(server.last_refusal(),
                             "without a job key the store serves its own user only, 0, and the client belongs to user "
                             "65534; with a key in TUTTI_JOB_KEY"))
            << server.last_refusal();
      }
      TcpStore store({.host = address, .port = server.port(), .job_key = ""});
      EXPECT_EQ(store.num_keys(), 0) << address << (stays ? "" : ", and the client had left");
    }
  }
}

TEST(StoreWithoutLoopback, IsAnErrorAtOnceThatSaysHowToMendIt) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    int said[2];
    ASSERT_EQ(pipe(said), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::string text = "no error";
      if (unshare(CLONE_NEWNET) != 0) text = "unshare failed";
      else
        text = message_of<EnvironmentError>(
            [&] { TcpStore({.host = host, .port = 7, .timeout = seconds(600), .job_key = ""}); });
      _exit(write(said[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    close(said[1]);
    std::string text(4096, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(said[0], text.data(), text.size()))));
    close(said[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_NE(text.find("store: 127.0.0.1:7 cannot be reached, because the loopback interface of this host or "
                        "container is down (Network is unreachable"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("bring it up: ip link set lo up"), std::string::npos) << text;
  }
}

TEST(TcpStoreServer, OwnersAreReadFromTheTableOfSockets) {
  constexpr const char* kTable =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
      "   1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1\n"
      "   2: 0100007F:9C41 0100007F:1F90 04 00000000:00000000 00:00000000 00000000     0        0 0 1\n"
      "   3: 0100007F:9C42";
  EXPECT_EQ(uid_in_socket_table(kTable, "0100007F:9C40", "0100007F:1F90"), uid_t{1000});
  EXPECT_EQ(uid_in_socket_table(kTable, "0100007F:1F90", "0100007F:9C40"), std::nullopt);
  EXPECT_EQ(uid_in_socket_table(kTable, "0100007F:9C41", "0100007F:1F90"), std::nullopt);  // nobody has it any more
  EXPECT_EQ(uid_in_socket_table(kTable, "0100007F:9C42", ""), std::nullopt);
}

// Strangers who greet and prove nothing take neither the descriptors of the process nor the turn of those who know the
// key.
TEST(TcpStoreServer, StrangersHoldABoundedNumberOfConnections) {
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = kKey});
  constexpr int kStrangers = 5000;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_GT(limit.rlim_cur, 3u * kStrangers) << "both ends of the connections are here";
  TcpStore first({.port = server.port(), .job_key = kKey});
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(connect_raw(server.port()));
    ASSERT_TRUE(strangers.back()) << i;
  }
  ASSERT_TRUE(becomes_true([&] { return server.num_refused() >= kStrangers - 4096; }));
  EXPECT_LE(server.num_clients(), 4097);
  EXPECT_TRUE(contains(server.last_refusal(), "it was the slowest of 4097 that greeted at once"))
      << server.last_refusal();
  TcpStore second({.port = server.port(), .job_key = kKey});
  first.set("k", "v");
  EXPECT_EQ(second.get("k"), "v");
}

// In a process of its own: what a process may open can be taken back, but not be given again.
TEST(TcpStoreServer, SomeDescriptorsOfTheProcessAreNotForStrangers) {
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = kKey});
    const UniqueFd lowest(dup(0));
    const auto most = static_cast<rlim_t>(lowest.get()) + 64 + 80;
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    const int port = server.port();
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || write(said[1], &port, sizeof port) != sizeof port) _exit(1);
    if (!becomes_true([&] { return server.num_clients() > 70; })) _exit(2);
    std::this_thread::sleep_for(milliseconds(100));  // all strangers have come
    std::vector<UniqueFd> others;
    for (int i = 0; i < 60; ++i) {
      others.push_back(UniqueFd(dup(0)));
      if (!others.back()) _exit(100 + i);
    }
    _exit(0);
  }
  int port = 0;
  ASSERT_EQ(read(said[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(connect_raw(port));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(said[0]), close(said[1]);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "from 100 on: the number of descriptors that were there for others";
}

TEST(TcpStoreServer, AClientThatReadsNoRepliesHoldsUpNobody) {
  TcpStoreServer server({.job_key = ""});
  TcpStore store({.port = server.port(), .job_key = ""});
  store.set("large", std::string(8'000'000, 'x'));
  const UniqueFd client = connect_raw(server.port());
  const Nonce nonce = make_nonce();
  std::string frames = WireWriter(WireOp::kHello).put_bytes({nonce.data(), nonce.size()}).put_u8(0).finish();
  for (int i = 0; i < 1000; ++i) {
    frames += WireWriter(WireOp::kGet).put_u8(1).put_i64(0).put_list({"large"}).finish();
  }
  ASSERT_GT(send(client.get(), frames.data(), frames.size(), MSG_NOSIGNAL), 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(store.add("n", 1), i + 1);
}

}  // namespace
}  // namespace tutti::comm

// Random and damaged frames at a live server: it answers or drops, and goes on serving others.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <vector>

#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/store_requests.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {
namespace {

std::string hello() {
  const std::string nonce(32, 'n');
  return WireWriter(WireOp::kHello).put_bytes(nonce).put_u8(0).finish();
}

// A valid request of every kind; none waits longer than a millisecond.
std::vector<std::string> good_frames() {
  return {
      WireWriter(WireOp::kSet).put_bytes("key").put_bytes("value").finish(),
      WireWriter(WireOp::kGet).put_u8(1).put_i64(1).put_list({"key", "missing"}).finish(),
      WireWriter(WireOp::kAdd).put_bytes("number").put_i64(7).finish(),
      WireWriter(WireOp::kCompareSet).put_bytes("key").put_bytes("value").put_bytes("other").finish(),
      WireWriter(WireOp::kDelete).put_bytes("key").finish(),
      WireWriter(WireOp::kCheck).put_list({"key", "number"}).finish(),
      WireWriter(WireOp::kCount).finish(),
      WireWriter(WireOp::kAppend).put_bytes("key").put_bytes("more").finish(),
      WireWriter(WireOp::kMultiSet).put_list({"a", "b"}).put_list({"1", "2"}).finish(),
      WireWriter(WireOp::kList).put_bytes("").finish(),
      WireWriter(WireOp::kQueuePush).put_bytes("queue").put_bytes("item").finish(),
      WireWriter(WireOp::kQueuePop).put_u8(1).put_i64(1).put_bytes("queue").finish(),
      WireWriter(WireOp::kQueueLen).put_bytes("queue").finish(),
      WireWriter(WireOp::kBarrier).put_bytes("barrier").put_i64(2).put_i64(1).finish(),
      WireWriter(WireOp::kProof).put_bytes(std::string(32, 'p')).finish(),
  };
}

std::string damaged(std::string bytes, std::mt19937& random) {
  for (int edits = static_cast<int>(random() % 4); edits > 0 && !bytes.empty(); --edits) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 1:
        bytes.insert(at, 1, static_cast<char>(random()));
        break;
      case 2:
        bytes[at] = static_cast<char>(random());
        break;
      default:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 30));
    }
  }
  return bytes;
}

void expect_that_others_are_served(TcpStore& store, unsigned seed) {
  const std::string key = "good " + std::to_string(seed);
  store.set(key, "v");
  ASSERT_EQ(store.get(key), "v") << "seed " << seed;
  ASSERT_TRUE(store.delete_key(key)) << "seed " << seed;
}

void attack(int port, const std::string& bytes, bool wait_for_end) {
  std::string error;
  const UniqueFd client = try_connect("127.0.0.1", port, StoreDeadline(std::chrono::seconds(20)), error);
  ASSERT_TRUE(client) << error;
  // The server may drop the connection before everything was sent.
  (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (!wait_for_end) return;
  shutdown(client.get(), SHUT_WR);
  char answer[4096];
  pollfd waited{.fd = client.get(), .events = POLLIN, .revents = 0};
  while (poll(&waited, 1, 20'000) == 1) {
    if (recv(client.get(), answer, sizeof answer, 0) <= 0) return;
  }
  FAIL() << "the server neither answered nor dropped the client";
}

TEST(StoreFuzz, RandomBytesAtTheServer) {
  TcpStoreServer server({.job_key = ""});
  TcpStore store({.port = server.port(), .job_key = ""});
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = seed % 2 ? hello() : "";
    for (size_t left = random() % 200; left > 0; --left) bytes += static_cast<char>(random());
    attack(server.port(), bytes, seed % 3 == 0);
    if (seed % 50 == 0) expect_that_others_are_served(store, seed);
  }
  expect_that_others_are_served(store, 500);
}

TEST(StoreFuzz, DamagedFramesAtTheServer) {
  const std::vector<std::string> good = good_frames();
  TcpStoreServer server({.job_key = ""});
  TcpStore store({.port = server.port(), .job_key = ""});
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = seed % 8 ? hello() : damaged(hello(), random);
    for (size_t count = 1 + random() % 6; count > 0; --count) bytes += damaged(good[random() % good.size()], random);
    attack(server.port(), bytes, seed % 3 == 0);
    if (seed % 100 == 0) expect_that_others_are_served(store, seed);
  }
  expect_that_others_are_served(store, 1500);
}

TEST(StoreFuzz, NothingPassesWithoutTheKey) {
  const std::vector<std::string> good = good_frames();
  const std::string key = make_job_key();
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = key});
  TcpStore store({.port = server.port(), .job_key = key});
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = hello();
    for (size_t count = 1 + random() % 6; count > 0; --count) bytes += damaged(good[random() % good.size()], random);
    attack(server.port(), bytes, seed % 3 == 0);
  }
  EXPECT_EQ(store.num_keys(), 0);
  EXPECT_EQ(store.queue_len("queue"), 0);
}

TEST(StoreFuzz, DamagedBodiesAreUnderstoodOrRefused) {
  const std::vector<std::string> good = good_frames();
  std::map<uint64_t, int> replies;
  StoreRequests requests([&](uint64_t client, std::string frame) {
    ASSERT_GE(frame.size(), kWireHeaderBytes);
    ++replies[client];
  });
  uint64_t client = 0;
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    std::mt19937 random(seed);
    const std::string& frame = good[random() % good.size()];
    const uint8_t code = random() % 16 ? static_cast<uint8_t>(frame[5]) : static_cast<uint8_t>(random());
    const std::string body = damaged(frame.substr(kWireHeaderBytes), random);
    ++client;
    try {
      requests.handle(client, code, body);
      EXPECT_EQ(replies[client], requests.is_waiting(client) ? 0 : 1) << "seed " << seed;
    } catch (const WireError&) {
      EXPECT_EQ(replies[client], 0) << "seed " << seed;
      EXPECT_FALSE(requests.is_waiting(client)) << "seed " << seed;
    }
    if (seed % 3 == 0) requests.forget(client);
  }
  requests.expire(StoreRequests::Moment::max());
  EXPECT_EQ(requests.next_deadline(), std::nullopt);
}

}  // namespace
}  // namespace tutti::comm

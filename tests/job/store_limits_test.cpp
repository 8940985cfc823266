// The bounds of what one request to a store may cost: how many keys it names, and what one that waits costs those who
// change the table.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/job/support/temporary_folder.h"
#include "tests/support/message_of.h"
#include "tutti/job/store/file_store.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/store_requests.h"
#include "tutti/job/store/store_rules.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Store::Keys numbered(size_t count) {
  Store::Keys keys;
  for (size_t i = 0; i < count; ++i) keys.push_back(fmt::format("k{}", i));
  return keys;
}

// All stores, so that a program that works with one does with the others.
TEST(StoreLimits, ACallNamesAtMost65536Keys) {
  const TemporaryFolder folder;
  TcpStoreServer server({.job_key = ""});
  const std::vector<std::shared_ptr<Store>> stores = {
      std::make_shared<HashStore>(), std::make_shared<FileStore>(folder.file("store")),
      std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port(), .job_key = ""})};
  const Store::Keys most = numbered(kMaxStoreKeys), more = numbered(kMaxStoreKeys + 1);
  const std::string wanted = "store: one call names 65537 keys, the limit is 65536; make several calls";
  for (const auto& store : stores) {
    store->multi_set(most, most);
    EXPECT_EQ(store->multi_get(most, seconds(0)), most) << store->address();
    EXPECT_TRUE(store->check(most)) << store->address();
    store->wait(most, seconds(0));
    EXPECT_EQ(store->list_keys().size(), most.size()) << store->address();
    EXPECT_EQ(message_of([&] { store->multi_set(more, more); }), wanted) << store->address();
    EXPECT_EQ(message_of([&] { store->multi_get(more, seconds(0)); }), wanted) << store->address();
    EXPECT_EQ(message_of([&] { store->check(more); }), wanted) << store->address();
    EXPECT_EQ(message_of([&] { store->wait(more, seconds(0)); }), wanted) << store->address();
  }
  // Together they may be more.
  stores[2]->set("one more", "");
  EXPECT_EQ(stores[2]->list_keys().size(), most.size() + 1);
}

// A client that keeps to no rule: the greeting, and then the list of empty items behind the beginning of a request.
struct RawClient {
  explicit RawClient(int port) {
    std::string error;
    fd = try_connect("127.0.0.1", port, StoreDeadline(seconds(20)), error);
    const Nonce nonce = make_nonce();
    send_all(WireWriter(WireOp::kHello).put_bytes({nonce.data(), nonce.size()}).put_u8(0).finish());
    receive();
  }
  void send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd ready{.fd = fd.get(), .events = POLLOUT, .revents = 0};
      ASSERT_EQ(poll(&ready, 1, 20'000), 1);
      const ssize_t put = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(put, 0);
      bytes.remove_prefix(static_cast<size_t>(put));
    }
  }
  // One small reply.
  std::string receive() {
    pollfd ready{.fd = fd.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&ready, 1, 20'000), 1);
    char bytes[1024];
    const ssize_t got = recv(fd.get(), bytes, sizeof bytes, 0);
    return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
  }
  UniqueFd fd;
};

TEST(StoreLimits, AListThatIsTooLongIsAnErrorAndTheClientGoesOn) {
  TcpStoreServer server({.job_key = ""});
  RawClient client(server.port());
  const std::vector<std::string> many(1'000'000), none;
  const auto refused = [&](std::string frame, const std::string& what) {
    client.send_all(frame);
    const std::string answer = client.receive();
    EXPECT_TRUE(says(answer, "store: one request has a list of 1000000 items, the limit is 65536; make several"))
        << what << ": " << answer;
    EXPECT_EQ(read_wire_header(answer).code, static_cast<uint8_t>(WireStatus::kUsageError)) << what;
  };
  refused(WireWriter(WireOp::kGet).put_u8(1).put_i64(0).put_list(many).finish(), "multi_get");
  refused(WireWriter(WireOp::kGet).put_u8(0).put_i64(100'000).put_list(many).finish(), "wait");
  refused(WireWriter(WireOp::kCheck).put_list(many).finish(), "check");
  refused(WireWriter(WireOp::kMultiSet).put_list(many).put_list(none).finish(), "multi_set, keys");
  refused(WireWriter(WireOp::kMultiSet).put_list(none).put_list(many).finish(), "multi_set, values");
  client.send_all(WireWriter(WireOp::kCount).finish());
  EXPECT_EQ(read_wire_header(client.receive()).code, static_cast<uint8_t>(WireStatus::kOk));
  EXPECT_EQ(server.num_refused(), 0);
}

// The requests of clients, without sockets.
struct Requests {
  std::vector<std::pair<uint64_t, WireStatus>> replies;
  StoreRequests requests{[this](uint64_t client, std::string frame) {
    replies.emplace_back(client, static_cast<WireStatus>(read_wire_header(frame).code));
  }};
  void call(uint64_t client, const std::string& frame) {
    requests.handle(client, static_cast<uint8_t>(frame[5]), std::string_view(frame).substr(kWireHeaderBytes));
  }
  void set(const std::string& key) { call(1, WireWriter(WireOp::kSet).put_bytes(key).put_bytes("v").finish()); }
  void erase(const std::string& key) { call(1, WireWriter(WireOp::kDelete).put_bytes(key).finish()); }
  void park(uint64_t client, const Store::Keys& keys) {
    call(client, WireWriter(WireOp::kGet).put_u8(1).put_i64(100'000).put_list(keys).finish());
  }
};

TEST(StoreLimits, AWaitThatIsLongDoesNotMakeChangesDear) {
  const Store::Keys keys = numbered(4096);
  const auto time_of = [&](int waiting) {
    Requests store;
    for (int client = 0; client < waiting; ++client) store.park(100 + static_cast<uint64_t>(client), keys);
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& key : keys) store.set(key);
    const auto time = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(store.replies.size(), keys.size() + static_cast<size_t>(waiting));
    return time;
  };
  const auto alone = std::min(time_of(0), time_of(0));
  // It asks for every key once more, and moves from key to key.
  EXPECT_LT(std::min(time_of(1), time_of(1)), 50 * alone);
}

TEST(StoreLimits, WhatIsErasedMeanwhileIsWaitedForAgain) {
  Requests store;
  store.park(7, {"a", "b", "c", "d"});
  const auto is_waiting = [&] { return store.requests.is_waiting(7); };
  store.set("a");
  store.set("c");
  store.erase("a");
  store.set("b");
  store.erase("b");
  store.erase("c");
  store.set("d");
  EXPECT_TRUE(is_waiting());
  for (const char* key : {"c", "a"}) store.set(key);
  EXPECT_TRUE(is_waiting());
  store.set("b");
  EXPECT_FALSE(is_waiting());
  EXPECT_EQ(std::count(store.replies.begin(), store.replies.end(), std::pair(uint64_t{7}, WireStatus::kOk)), 1);
}

}  // namespace
}  // namespace tutti::comm

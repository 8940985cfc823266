// TcpStore: a store on any host of the job, as a client of a TcpStoreServer.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tutti/job/store/job_key.h"
#include "tutti/job/store/store.h"
#include "tutti/runtime/fork_guard.h"

namespace tutti::comm {

class TcpConnection;
struct WireReply;

struct TcpStoreOptions {
  std::string host = "127.0.0.1";  // name, IPv4 or IPv6 address
  int port = 0;
  // For connecting, which is retried until the server responds, and the default for every call.
  std::chrono::milliseconds timeout = kDefaultStoreTimeout;
  std::string job_key = read_job_key();
};

// Calls of several threads on one TcpStore are serialized, so a call that waits holds up the others. Each clone() has
// its own connection. In a fork()ed child, whose parent goes on using the connection, all calls but clone() are a
// UsageError.
class TcpStore : public Store {
 public:
  // StoreTimeout when no server answers at host and port by the deadline; UsageError when the job keys differ.
  explicit TcpStore(TcpStoreOptions options);
  ~TcpStore() override;

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, Timeout timeout = {}) override;
  int64_t add(std::string_view key, int64_t amount) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override;
  bool delete_key(std::string_view key) override;
  bool check(const Keys& keys) override;
  void wait(const Keys& keys, Timeout timeout = {}) override;
  int64_t num_keys() override;
  void append(std::string_view key, std::string_view value) override;
  std::vector<std::string> multi_get(const Keys& keys, Timeout timeout = {}) override;
  // UsageError when keys and values together exceed 129 MiB.
  void multi_set(const Keys& keys, const std::vector<std::string>& values) override;
  Keys list_keys(std::string_view prefix = "") override;
  void queue_push(std::string_view key, std::string_view value) override;
  std::optional<std::string> queue_pop(std::string_view key, bool block = true, Timeout timeout = {}) override;
  int64_t queue_len(std::string_view key) override;
  void barrier(std::string_view key, int64_t world_size, Timeout timeout = {}) override;
  std::shared_ptr<Store> clone() override { return clone(timeout()); }
  // With another timeout, by which it must be connected.
  std::shared_ptr<TcpStore> clone(std::chrono::milliseconds timeout) const;
  bool has(StoreCapability) const override { return true; }
  std::string address() const override;

 private:
  // Makes one request once the connection is free. make(left) builds the frame, given the milliseconds
  // that the server may wait.
  WireReply call(std::string_view op, std::string_view key, std::chrono::milliseconds limit,
                 const std::function<std::string(int64_t left)>& make);
  WireReply call_now(std::string_view op, std::string_view key, const std::function<std::string()>& make);
  WireReply fetch(std::string_view op, const Keys& keys, Timeout timeout, bool wants_values);

  const ForkGuard process_;
  const TcpStoreOptions options_;
  std::unique_ptr<TcpConnection> connection_;
  std::mutex mutex_;
  std::condition_variable free_again_;
  bool busy_ = false;
};

// The same, for callers that are also part of builds without stores over TCP, where it is a UsageError that says so.
std::shared_ptr<Store> connect_store(TcpStoreOptions options);

}  // namespace tutti::comm

// A small table of bytes that the ranks of a job share: how they find each other and agree before collectives exist.
//
// Keys and values are bytes. Four stores have the same calls: HashStore (threads of one process), FileStore (processes
// that share a file system), TcpStore (any hosts), and PrefixStore, which gives a part of the program names of its own
// inside another store. rendezvous.h makes one from the environment or a URL.
//
// Limits: a key has 1 to 4096 bytes, a value at most 64 MiB; more is a UsageError. Errors of all stores: UsageError when
// an argument breaks a rule, StoreTimeout at a deadline, EnvironmentError when the server or the file is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::comm {

constexpr size_t kMaxStoreKeyBytes = 4096;
constexpr size_t kMaxStoreValueBytes = size_t{64} << 20;
constexpr std::chrono::milliseconds kDefaultStoreTimeout = std::chrono::seconds(300);

// A deadline passed. The text names the keys still missing (or the ranks that came), the time waited and the address.
class StoreTimeout : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// What not every store has. Ask has() before relying on it.
enum class StoreCapability {
  kQueues,  // queue_push, queue_pop, queue_len
};

// Every store may be called from several threads. A call may wait for another thread's call on the same object, so a
// thread that must not be held up by others' waiting uses its own clone().
class Store {
 public:
  using Keys = std::vector<std::string>;
  // nullopt = timeout(). 0 = do not wait. Negative is a UsageError.
  using Timeout = std::optional<std::chrono::milliseconds>;

  explicit Store(std::chrono::milliseconds timeout = kDefaultStoreTimeout);
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual void set(std::string_view key, std::string_view value) = 0;
  // Waits until the key is there.
  virtual std::string get(std::string_view key, Timeout timeout = {}) = 0;
  // Adds to the decimal number stored under the key (0 when missing) and returns the sum, which is stored as decimal
  // text. UsageError when the value is no int64 or the sum leaves its range.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
  // Stores `desired` when the value equals `expected`, and returns the value that the key has then. A missing key:
  // `desired` is stored when `expected` is empty, otherwise nothing is stored and `expected` is returned.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) = 0;
  // Also deletes a queue of that name. True when there was something to delete.
  virtual bool delete_key(std::string_view key) = 0;
  // True when all keys are there; never waits.
  virtual bool check(const Keys& keys) = 0;
  // Waits until all keys are there.
  virtual void wait(const Keys& keys, Timeout timeout = {}) = 0;
  // Keys that have a value; queues do not count, and a PrefixStore counts its own.
  virtual int64_t num_keys() = 0;
  // Adds bytes to the end of the value ("" when missing).
  virtual void append(std::string_view key, std::string_view value) = 0;
  // The values of all keys, read at one moment when all are there.
  virtual std::vector<std::string> multi_get(const Keys& keys, Timeout timeout = {}) = 0;
  // keys.size() == values.size(). All appear at one moment.
  virtual void multi_set(const Keys& keys, const std::vector<std::string>& values) = 0;
  // The keys that begin with `prefix`, sorted.
  virtual Keys list_keys(std::string_view prefix = "") = 0;

  // First in, first out. Queues have names of their own: check, wait, num_keys and list_keys do not see them.
  virtual void queue_push(std::string_view key, std::string_view value) = 0;
  // nullopt when the queue is empty and `block` is false; otherwise waits for a value.
  virtual std::optional<std::string> queue_pop(std::string_view key, bool block = true, Timeout timeout = {}) = 0;
  virtual int64_t queue_len(std::string_view key) = 0;

  // Returns when world_size callers have come to this barrier; then the name can be used again. One round trip. A
  // caller that gives up is no longer counted. UsageError when callers name different world sizes.
  virtual void barrier(std::string_view key, int64_t world_size, Timeout timeout = {}) = 0;

  // A second handle to the same table, with the same timeout.
  virtual std::shared_ptr<Store> clone() = 0;
  virtual bool has(StoreCapability capability) const = 0;
  // Where the table is, for messages: "tcp://127.0.0.1:29500", "file:///tmp/store", "this process".
  virtual std::string address() const = 0;

  // How long blocking calls wait when they are not told.
  std::chrono::milliseconds timeout() const;
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  std::atomic<int64_t> timeout_ms_;
};

}  // namespace tutti::comm

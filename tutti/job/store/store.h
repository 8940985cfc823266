// Store: a small key/value table shared by the ranks of a job, through which they find each other and agree before they
// can run collectives.
//
// Keys and values are byte strings. There are four stores: HashStore (threads of one process), FileStore (processes
// that share a file system), TcpStore (any hosts), and PrefixStore, which gives a part of the program a separate key
// space inside another store. rendezvous() creates one from the environment or a URL.
//
// Limits: a key has 1 to 4096 bytes, a value at most 64 MiB, and a call names at most 65536 keys; more is a UsageError.
// All stores throw UsageError for an invalid argument, StoreTimeout at a deadline, and EnvironmentError when the server
// or the file is gone.
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

// A deadline passed. The text names the keys still missing (or how many callers arrived), the time waited and the
// address.
class StoreTimeout : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// Features that not every store has. Ask has() before relying on one.
enum class StoreCapability {
  kQueues,  // queue_push, queue_pop, queue_len
};

// Every store may be called from several threads. A call may have to wait for a blocking call of another thread on the
// same object; a thread that must not wait for others uses its own clone().
class Store {
 public:
  using Keys = std::vector<std::string>;
  // nullopt: timeout(). 0: do not wait. A negative timeout is a UsageError.
  using Timeout = std::optional<std::chrono::milliseconds>;

  explicit Store(std::chrono::milliseconds timeout = kDefaultStoreTimeout);
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual void set(std::string_view key, std::string_view value) = 0;
  // Waits until the key exists and returns its value.
  virtual std::string get(std::string_view key, Timeout timeout = {}) = 0;
  // Adds to the decimal number stored under the key (0 when missing), stores the sum as decimal text and returns it.
  // UsageError when the value is not an int64 or the sum is out of range.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
  // Stores `desired` if the value equals `expected`, and returns the value that the key then has. If the key is
  // missing, `desired` is stored if `expected` is empty; otherwise nothing is stored and `expected` is returned.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) = 0;
  // Also deletes a queue of that name. True when there was something to delete.
  virtual bool delete_key(std::string_view key) = 0;
  // True when all keys exist; never waits.
  virtual bool check(const Keys& keys) = 0;
  // Waits until all keys exist.
  virtual void wait(const Keys& keys, Timeout timeout = {}) = 0;
  // The number of keys with a value. Queues are not counted; a PrefixStore counts only its own keys.
  virtual int64_t num_keys() = 0;
  // Appends bytes to the value ("" when missing).
  virtual void append(std::string_view key, std::string_view value) = 0;
  // Waits until all keys exist and returns their values, read atomically.
  virtual std::vector<std::string> multi_get(const Keys& keys, Timeout timeout = {}) = 0;
  // Sets all keys atomically. keys.size() must equal values.size().
  virtual void multi_set(const Keys& keys, const std::vector<std::string>& values) = 0;
  // The keys that begin with `prefix`, sorted.
  virtual Keys list_keys(std::string_view prefix = "") = 0;

  // Queues are first in, first out. Their names are separate from keys: check, wait, num_keys and list_keys do not see
  // them.
  virtual void queue_push(std::string_view key, std::string_view value) = 0;
  // Takes a value. If the queue is empty, waits for one if `block` is true, else returns nullopt.
  virtual std::optional<std::string> queue_pop(std::string_view key, bool block = true, Timeout timeout = {}) = 0;
  virtual int64_t queue_len(std::string_view key) = 0;

  // Returns when world_size callers have arrived at this barrier; then the name can be used again. Takes one round
  // trip. A caller that times out is no longer counted. UsageError when callers give different world sizes.
  virtual void barrier(std::string_view key, int64_t world_size, Timeout timeout = {}) = 0;

  // Throws when those who meet in this store need not wait for each other any more. Whoever waits for them elsewhere,
  // such as at a socket, calls it again and again. This one does nothing.
  virtual void look() {}

  // A second handle to the same table, with the same timeout.
  virtual std::shared_ptr<Store> clone() = 0;
  virtual bool has(StoreCapability capability) const = 0;
  // The location of the table, for messages: "tcp://127.0.0.1:29500", "file:///tmp/store", "this process".
  virtual std::string address() const = 0;

  // The default timeout of blocking calls.
  std::chrono::milliseconds timeout() const;
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  std::atomic<int64_t> timeout_ms_;
};

}  // namespace tutti::comm

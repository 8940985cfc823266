#include "tutti/job/store/hash_store.h"

#include <condition_variable>
#include <mutex>

#include "tutti/job/store/key_table.h"
#include "tutti/job/store/store_rules.h"
#include "tutti/runtime/fork_guard.h"

namespace tutti::comm {

struct HashStore::Shared {
  const ForkGuard process;
  std::mutex mutex;
  std::condition_variable changed;
  KeyTable table;

  // UsageError in a fork()ed child, where nobody may be left to release the mutex.
  std::unique_lock<std::mutex> hold() {
    process.check("a store of one process");
    return std::unique_lock(mutex);
  }
  // One change to the table; those who wait look again.
  template <class Change>
  auto change(const Change& fn) {
    const auto lock = hold();
    changed.notify_all();
    return fn(table);
  }
};

HashStore::HashStore(std::chrono::milliseconds timeout) : HashStore(std::make_shared<Shared>(), timeout) {}
HashStore::HashStore(std::shared_ptr<Shared> shared, std::chrono::milliseconds timeout)
    : Store(timeout), shared_(std::move(shared)) {}
HashStore::~HashStore() {
  if (shared_->process.is_in_child())
    ForkGuard::keep(std::move(shared_));  // its destructor would wait for threads of the parent
}

std::string HashStore::address() const { return "this process"; }

std::shared_ptr<Store> HashStore::clone() { return std::shared_ptr<Store>(new HashStore(shared_, timeout())); }

void HashStore::set(std::string_view key, std::string_view value) {
  shared_->change([&](KeyTable& table) { table.set(key, value); });
}

int64_t HashStore::add(std::string_view key, int64_t amount) {
  return shared_->change([&](KeyTable& table) { return table.add(key, amount); });
}

std::string HashStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  return shared_->change([&](KeyTable& table) { return table.compare_set(key, expected, desired); });
}

bool HashStore::delete_key(std::string_view key) {
  return shared_->change([&](KeyTable& table) { return table.erase(key); });
}

void HashStore::append(std::string_view key, std::string_view value) {
  shared_->change([&](KeyTable& table) { table.append(key, value); });
}

void HashStore::multi_set(const Keys& keys, const std::vector<std::string>& values) {
  shared_->change([&](KeyTable& table) { table.set_all(keys, values); });
}

void HashStore::queue_push(std::string_view key, std::string_view value) {
  shared_->change([&](KeyTable& table) { table.push(key, value); });
}

bool HashStore::check(const Keys& keys) {
  const auto lock = shared_->hold();
  return shared_->table.find_missing(keys).empty();
}

int64_t HashStore::num_keys() {
  const auto lock = shared_->hold();
  return shared_->table.size();
}

Store::Keys HashStore::list_keys(std::string_view prefix) {
  const auto lock = shared_->hold();
  return shared_->table.list(prefix);
}

int64_t HashStore::queue_len(std::string_view key) {
  const auto lock = shared_->hold();
  return shared_->table.queue_len(key);
}

std::vector<std::string> HashStore::wait_for(std::string_view call, const Keys& keys, Timeout timeout, bool read) {
  const auto limit = timeout.value_or(this->timeout());
  check_store_timeout(call, limit);
  const StoreDeadline deadline(limit);
  auto lock = shared_->hold();
  Keys missing = shared_->table.find_missing(keys);
  while (!missing.empty()) {
    if (deadline.has_passed()) throw_keys_timeout(call, address(), missing, keys.size(), limit);
    shared_->changed.wait_until(lock, deadline.moment());
    missing = shared_->table.find_missing(keys);
  }
  std::vector<std::string> values;
  if (read) {
    for (const std::string& key : keys) values.push_back(*shared_->table.find(key));
  }
  return values;
}

std::string HashStore::get(std::string_view key, Timeout timeout) {
  return std::move(wait_for("get", {std::string(key)}, timeout, true)[0]);
}

void HashStore::wait(const Keys& keys, Timeout timeout) { wait_for("wait", keys, timeout, false); }

std::vector<std::string> HashStore::multi_get(const Keys& keys, Timeout timeout) {
  return wait_for("multi_get", keys, timeout, true);
}

std::optional<std::string> HashStore::queue_pop(std::string_view key, bool block, Timeout timeout) {
  const auto limit = timeout.value_or(this->timeout());
  check_store_timeout("queue_pop", limit);
  const StoreDeadline deadline(limit);
  auto lock = shared_->hold();
  std::optional<std::string> value = shared_->table.pop(key);
  while (!value && block) {
    if (deadline.has_passed()) throw_queue_timeout(address(), key, limit);
    shared_->changed.wait_until(lock, deadline.moment());
    value = shared_->table.pop(key);
  }
  return value;
}

void HashStore::barrier(std::string_view key, int64_t world_size, Timeout timeout) {
  const auto limit = timeout.value_or(this->timeout());
  check_store_timeout("barrier", limit);
  const StoreDeadline deadline(limit);
  auto lock = shared_->hold();
  const std::shared_ptr<BarrierRound> round = shared_->table.arrive(key, world_size);
  if (round->is_complete()) shared_->changed.notify_all();
  while (!round->is_complete()) {
    if (deadline.has_passed()) {
      const int64_t arrived = round->arrived;
      shared_->table.leave(key);
      throw_barrier_timeout(address(), key, arrived, world_size, limit);
    }
    shared_->changed.wait_until(lock, deadline.moment());
  }
}

}  // namespace tutti::comm

// MemoTable: results about calls, stored by full signature. One thread computes a result while others that request the
// same wait for it; a failure is thrown to all of them and not stored, so that the next call tries again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "tutti/codegen/choice/signature.h"
#include "tutti/core/error.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::codegen::choice {

// Any thread. Value is copied out: small, or a shared pointer.
template <class Value>
class MemoTable {
 public:
  // Beyond `capacity` entries the one that came first is forgotten.
  explicit MemoTable(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}

  std::optional<Value> find(const Signature& key) const {
    const std::shared_lock guard(mutex_);
    const auto found = known_.find(key);
    return found == known_.end() ? std::nullopt : std::optional<Value>(found->second);
  }

  // The value of `key`, else what make() returns. UsageError when make() asks for `key` itself.
  Value get(const Signature& key, FunctionRef<Value()> make) {
    if (std::optional<Value> value = find(key)) return *value;
    const Turn turn = take_turn(key);
    return turn.value     ? *turn.value
           : turn.is_mine ? make_and_publish(key, *turn.flight, make)
                          : wait_for(key, *turn.flight);
  }

  // The same, but nothing while another thread is working on it: for callers who hold what that thread may need.
  std::optional<Value> get_unless_busy(const Signature& key, FunctionRef<Value()> make) {
    if (std::optional<Value> value = find(key)) return value;
    const Turn turn = take_turn(key);
    if (turn.value || !turn.is_mine) return turn.value;
    return make_and_publish(key, *turn.flight, make);
  }

  // From now on the value of `key`.
  void put(const Signature& key, const Value& value) {
    const std::unique_lock guard(mutex_);
    store(key, value);
  }

  int64_t size() const {
    const std::shared_lock guard(mutex_);
    return static_cast<int64_t>(known_.size());
  }

 private:
  struct Flight {
    const std::thread::id owner = std::this_thread::get_id();
    std::mutex mutex;
    std::condition_variable ended;
    std::optional<Value> value;  // one of these two when it has ended
    std::exception_ptr error;
  };
  struct Turn {
    std::optional<Value> value;  // published meanwhile
    std::shared_ptr<Flight> flight;
    bool is_mine = false;
  };

  Turn take_turn(const Signature& key) {
    const std::unique_lock guard(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return {found->second, nullptr, false};
    std::shared_ptr<Flight>& flight = flights_[key];
    const bool is_mine = flight == nullptr;
    if (is_mine) flight = std::make_shared<Flight>();
    return {std::nullopt, flight, is_mine};
  }

  Value make_and_publish(const Signature& key, Flight& flight, FunctionRef<Value()> make) {
    std::optional<Value> value;
    std::exception_ptr error;
    try {
      value = make();
      const std::unique_lock guard(mutex_);
      if (const auto put_meanwhile = known_.find(key); put_meanwhile != known_.end()) value = put_meanwhile->second;
      else store(key, *value);
      flights_.erase(key);
    } catch (...) {
      error = std::current_exception();
      value.reset();
      const std::unique_lock guard(mutex_);
      flights_.erase(key);
    }
    {
      const std::lock_guard guard(flight.mutex);
      flight.value = value;
      flight.error = error;
    }
    flight.ended.notify_all();
    if (error) std::rethrow_exception(error);
    return *value;
  }

  Value wait_for(const Signature& key, Flight& flight) {
    TUTTI_CHECK(flight.owner != std::this_thread::get_id(), "choice: working out [{}] asks for itself", key.text());
    std::unique_lock guard(flight.mutex);
    flight.ended.wait(guard, [&] { return flight.value || flight.error; });
    if (flight.error) std::rethrow_exception(flight.error);
    return *flight.value;
  }

  void store(const Signature& key, const Value& value) {
    const auto [place, is_new] = known_.insert_or_assign(key, value);
    if (!is_new) return;
    order_.push_back(&place->first);
    if (known_.size() <= capacity_) return;
    known_.erase(known_.find(*order_.front()));
    order_.pop_front();
  }

  const size_t capacity_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<Signature, Value, SignatureHash> known_;
  std::deque<const Signature*> order_;  // of known_, oldest first
  std::unordered_map<Signature, std::shared_ptr<Flight>, SignatureHash> flights_;
};

}  // namespace tutti::codegen::choice

// Rules that all stores share: the limits of arguments, deadlines, and the texts of their errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/job/store/store.h"

namespace tutti::comm {

constexpr size_t kMaxStoreKeys = 65536;  // of one call

void check_store_key(std::string_view key);
void check_store_key_count(size_t count);
void check_store_keys(const Store::Keys& keys);
void check_store_value(std::string_view key, size_t nbytes);
void check_store_world_size(std::string_view key, int64_t world_size);
// `call` is "get", "wait", ... for the message.
void check_store_timeout(std::string_view call, std::chrono::milliseconds timeout);
// The sum as add() stores it.
int64_t store_add(std::string_view key, std::string_view stored, int64_t amount);

// A moment in the future.
class StoreDeadline {
 public:
  explicit StoreDeadline(std::chrono::milliseconds timeout);
  std::chrono::steady_clock::time_point moment() const { return moment_; }
  bool has_passed() const { return std::chrono::steady_clock::now() >= moment_; }
  // Rounded up, never negative, at most an hour: for poll() in a loop.
  int poll_milliseconds() const;
  StoreDeadline later(std::chrono::milliseconds extra) const;

 private:
  explicit StoreDeadline(std::chrono::steady_clock::time_point moment) : moment_(moment) {}
  std::chrono::steady_clock::time_point moment_;
};

// Bytes as a message can show them: cut, with \xNN for what is not printable.
std::string printable_key(std::string_view key);

// "get at tcp://h:1 waited 0.200 s in vain: 2 of 3 keys are missing: 'a', 'b'"
[[noreturn]] void throw_keys_timeout(std::string_view call, const std::string& address, const Store::Keys& missing,
                                     size_t asked, std::chrono::milliseconds waited);
[[noreturn]] void throw_queue_timeout(const std::string& address, std::string_view key,
                                      std::chrono::milliseconds waited);
[[noreturn]] void throw_barrier_timeout(const std::string& address, std::string_view key, int64_t arrived,
                                        int64_t world_size, std::chrono::milliseconds waited);

}  // namespace tutti::comm

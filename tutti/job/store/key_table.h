// The table behind HashStore and TcpStoreServer: what each call does to the data, without threads and without waiting.
//
// Used by one thread at a time. Arguments are checked here, so that a server holds its clients to the same rules.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/job/store/store.h"

namespace tutti::comm {

// One meeting at a barrier. It leaves the table when the last caller comes, so that the name can be used again.
struct BarrierRound {
  int64_t world_size = 0;
  int64_t arrived = 0;
  bool is_complete() const { return arrived == world_size; }
};

class KeyTable {
 public:
  void set(std::string_view key, std::string_view value);
  void set_all(const Store::Keys& keys, const std::vector<std::string>& values);
  // nullptr when missing.
  const std::string* find(std::string_view key) const;
  Store::Keys find_missing(const Store::Keys& keys) const;
  // The place of the first missing key at or after `begin`; keys.size() where there is none.
  size_t first_missing(const Store::Keys& keys, size_t begin = 0) const;
  // How many values were erased so far: as long as it stays, no key that was there is missing.
  uint64_t num_erased() const { return num_erased_; }
  int64_t add(std::string_view key, int64_t amount);
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  bool erase(std::string_view key);
  void append(std::string_view key, std::string_view value);
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  Store::Keys list(std::string_view prefix) const;

  void push(std::string_view key, std::string_view value);
  std::optional<std::string> pop(std::string_view key);
  int64_t queue_len(std::string_view key) const;

  // Counts one caller more. When that completes the round, the next caller begins a new one.
  std::shared_ptr<BarrierRound> arrive(std::string_view key, int64_t world_size);
  // Takes back an arrival at a round that is not complete.
  void leave(std::string_view key);

 private:
  std::string& slot(std::string_view key);

  std::map<std::string, std::string, std::less<>> values_;
  uint64_t num_erased_ = 0;
  std::map<std::string, std::deque<std::string>, std::less<>> queues_;  // none is empty
  std::map<std::string, std::shared_ptr<BarrierRound>, std::less<>> rounds_;
};

}  // namespace tutti::comm

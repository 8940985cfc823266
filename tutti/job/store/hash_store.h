// HashStore: a store inside one process, for ranks that are threads and for tests.
#pragma once

#include <memory>

#include "tutti/job/store/store.h"

namespace tutti::comm {

// Any number of threads may call one HashStore; a blocking call does not hold up calls of other threads.
class HashStore : public Store {
 public:
  explicit HashStore(std::chrono::milliseconds timeout = kDefaultStoreTimeout);
  ~HashStore() override;

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
  void multi_set(const Keys& keys, const std::vector<std::string>& values) override;
  Keys list_keys(std::string_view prefix = "") override;
  void queue_push(std::string_view key, std::string_view value) override;
  std::optional<std::string> queue_pop(std::string_view key, bool block = true, Timeout timeout = {}) override;
  int64_t queue_len(std::string_view key) override;
  void barrier(std::string_view key, int64_t world_size, Timeout timeout = {}) override;
  std::shared_ptr<Store> clone() override;
  bool has(StoreCapability) const override { return true; }
  std::string address() const override;

 private:
  struct Shared;  // the state shared by clones
  HashStore(std::shared_ptr<Shared> shared, std::chrono::milliseconds timeout);
  std::vector<std::string> wait_for(std::string_view call, const Keys& keys, Timeout timeout, bool read);

  std::shared_ptr<Shared> shared_;
};

}  // namespace tutti::comm

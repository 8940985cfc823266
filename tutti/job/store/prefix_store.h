// PrefixStore: a separate key space for one part of a program. Every key is prefixed with "prefix/".
#pragma once

#include <memory>
#include <string>

#include "tutti/job/store/store.h"

namespace tutti::comm {

// Any number of threads may call one PrefixStore; whether they wait for each other depends on the underlying store.
class PrefixStore : public Store {
 public:
  // Starts with the timeout of `store`. UsageError when `store` is null or the prefix empty.
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);

  const std::shared_ptr<Store>& underlying() const { return store_; }
  const std::string& prefix() const { return prefix_; }

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
  void look() override { store_->look(); }
  std::shared_ptr<Store> clone() override;
  bool has(StoreCapability capability) const override { return store_->has(capability); }
  std::string address() const override { return store_->address(); }

 private:
  std::string full(std::string_view key) const;
  Keys full(const Keys& keys) const;
  std::chrono::milliseconds limit(Timeout timeout) const { return timeout.value_or(this->timeout()); }

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace tutti::comm

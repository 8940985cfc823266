// FileStore: a store in a file on a shared file system, without a server.
//
// The file is a log of changes; each process keeps the table that the log describes in memory. A process that is killed
// while writing does not damage the store; one that is killed at a barrier stays counted there. Waiting polls the file
// at intervals of 1 to 50 ms. File systems without flock() are refused with an error.
#pragma once

#include <memory>
#include <string>

#include "tutti/job/store/store.h"

namespace tutti::comm {

// Any number of threads may call one FileStore. They exclude each other only while one of them accesses the file.
class FileStore : public Store {
 public:
  // Joins the store at `path`, which is created when missing (its folder must exist). With world_size > 0 the file is
  // deleted once that many stores (not counting clones) have joined and all are gone; one more is a UsageError, because
  // the file must be from an earlier job. With 0 the file stays.
  explicit FileStore(std::string path, int64_t world_size = 0,
                     std::chrono::milliseconds timeout = kDefaultStoreTimeout);
  ~FileStore() override;

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
  // A FileStore does not support queues: these three throw UsageError.
  void queue_push(std::string_view key, std::string_view value) override;
  std::optional<std::string> queue_pop(std::string_view key, bool block = true, Timeout timeout = {}) override;
  int64_t queue_len(std::string_view key) override;
  void barrier(std::string_view key, int64_t world_size, Timeout timeout = {}) override;
  std::shared_ptr<Store> clone() override;
  bool has(StoreCapability capability) const override { return capability != StoreCapability::kQueues; }
  std::string address() const override;

 private:
  class Shared;  // the file and its table, shared by clones
  FileStore(std::shared_ptr<Shared> shared, std::chrono::milliseconds timeout);
  [[noreturn]] void throw_no_queues(std::string_view call) const;
  std::vector<std::string> wait_for(std::string_view call, const Keys& keys, Timeout timeout, bool read);

  std::shared_ptr<Shared> shared_;
};

}  // namespace tutti::comm

#include "tutti/job/store/file_store.h"

#include "tutti/job/store/file_table.h"
#include "tutti/job/store/store_rules.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {

FileStore::FileStore(std::string path, int64_t world_size, std::chrono::milliseconds timeout)
    : FileStore(std::make_shared<Shared>(std::move(path), world_size, timeout), timeout) {}
FileStore::FileStore(std::shared_ptr<Shared> shared, std::chrono::milliseconds timeout)
    : Store(timeout), shared_(std::move(shared)) {}
FileStore::~FileStore() = default;

std::string FileStore::address() const { return "file://" + shared_->path(); }

std::shared_ptr<Store> FileStore::clone() { return std::shared_ptr<Store>(new FileStore(shared_, timeout())); }

void FileStore::set(std::string_view key, std::string_view value) {
  shared_->with_file(StoreDeadline(timeout()), [&](Shared::Access& file) {
    file.commit(Shared::change(Shared::Change::kSet).put_bytes(key).put_bytes(value).finish());
  });
}

int64_t FileStore::add(std::string_view key, int64_t amount) {
  return shared_->with_file(StoreDeadline(timeout()), [&](Shared::Access& file) {
    const std::string* stored = file.table().find(key);
    const int64_t sum = store_add(key, stored == nullptr ? "" : *stored, amount);
    file.commit(Shared::change(Shared::Change::kSet).put_bytes(key).put_bytes(std::to_string(sum)).finish());
    return sum;
  });
}

std::string FileStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  check_store_value(key, expected.size());
  return shared_->with_file(StoreDeadline(timeout()), [&](Shared::Access& file) {
    const std::string* stored = file.table().find(key);
    if (stored == nullptr && !expected.empty()) return std::string(expected);
    if (stored != nullptr && *stored != expected) return *stored;
    file.commit(Shared::change(Shared::Change::kSet).put_bytes(key).put_bytes(desired).finish());
    return std::string(desired);
  });
}

bool FileStore::delete_key(std::string_view key) {
  return shared_->with_file(StoreDeadline(timeout()), [&](Shared::Access& file) {
    if (file.table().find(key) == nullptr) return false;
    file.commit(Shared::change(Shared::Change::kDelete).put_bytes(key).finish());
    return true;
  });
}

void FileStore::append(std::string_view key, std::string_view value) {
  shared_->with_file(StoreDeadline(timeout()), [&](Shared::Access& file) {
    file.commit(Shared::change(Shared::Change::kAppend).put_bytes(key).put_bytes(value).finish());
  });
}

void FileStore::multi_set(const Keys& keys, const std::vector<std::string>& values) {
  shared_->with_file(StoreDeadline(timeout()), [&](Shared::Access& file) {
    file.commit(Shared::change(Shared::Change::kMultiSet).put_list(keys).put_list(values).finish());
  });
}

bool FileStore::check(const Keys& keys) {
  return shared_->with_file(StoreDeadline(timeout()),
                            [&](Shared::Access& file) { return file.table().find_missing(keys).empty(); });
}

int64_t FileStore::num_keys() {
  return shared_->with_file(StoreDeadline(timeout()), [](Shared::Access& file) { return file.table().size(); });
}

Store::Keys FileStore::list_keys(std::string_view prefix) {
  return shared_->with_file(StoreDeadline(timeout()), [&](Shared::Access& file) { return file.table().list(prefix); });
}

std::vector<std::string> FileStore::wait_for(std::string_view call, const Keys& keys, Timeout timeout, bool read) {
  const auto limit = timeout.value_or(this->timeout());
  check_store_timeout(call, limit);
  Keys missing;
  std::vector<std::string> values;
  const bool found = shared_->wait(StoreDeadline(limit), [&](Shared::Access& file) {
    missing = file.table().find_missing(keys);
    if (!missing.empty()) return false;
    if (read) {
      for (const std::string& key : keys) values.push_back(*file.table().find(key));
    }
    return true;
  });
  if (!found) throw_keys_timeout(call, address(), missing, keys.size(), limit);
  return values;
}

std::string FileStore::get(std::string_view key, Timeout timeout) {
  return std::move(wait_for("get", {std::string(key)}, timeout, true)[0]);
}

void FileStore::wait(const Keys& keys, Timeout timeout) { wait_for("wait", keys, timeout, false); }

std::vector<std::string> FileStore::multi_get(const Keys& keys, Timeout timeout) {
  return wait_for("multi_get", keys, timeout, true);
}

void FileStore::barrier(std::string_view key, int64_t world_size, Timeout timeout) {
  const auto limit = timeout.value_or(this->timeout());
  check_store_timeout("barrier", limit);
  const StoreDeadline deadline(limit);
  std::shared_ptr<BarrierRound> round;
  const auto is_complete = [&](Shared::Access& file) {
    if (round == nullptr) round = file.arrive(key, world_size);
    return round->is_complete();
  };
  if (shared_->wait(deadline, is_complete)) return;
  int64_t arrived = 0;
  const bool left = shared_->with_file(deadline.later(std::chrono::seconds(5)), [&](Shared::Access& file) {
    arrived = round->arrived;
    if (round->is_complete()) return false;  // the last one came just now
    file.commit(Shared::change(Shared::Change::kLeave).put_bytes(key).finish());
    return true;
  });
  if (left) throw_barrier_timeout(address(), key, arrived, world_size, limit);
}

void FileStore::throw_no_queues(std::string_view call) const {
  throw UsageError(
      fmt::format("store at {}: {}: a FileStore has no queues (StoreCapability::kQueues); use a TcpStore, "
                  "or a HashStore inside one process",
                  address(), call));
}

void FileStore::queue_push(std::string_view, std::string_view) { throw_no_queues("queue_push"); }
std::optional<std::string> FileStore::queue_pop(std::string_view, bool, Timeout) { throw_no_queues("queue_pop"); }
int64_t FileStore::queue_len(std::string_view) { throw_no_queues("queue_len"); }

}  // namespace tutti::comm

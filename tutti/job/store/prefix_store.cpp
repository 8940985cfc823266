#include "tutti/job/store/prefix_store.h"

#include <utility>

#include "tutti/job/store/store_rules.h"

namespace tutti::comm {

static std::shared_ptr<Store> not_null(std::shared_ptr<Store> store) {
  TUTTI_CHECK(store != nullptr, "PrefixStore needs a store, got nullptr");
  return store;
}

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : Store(not_null(store)->timeout()), prefix_(std::move(prefix)), store_(std::move(store)) {
  TUTTI_CHECK(!prefix_.empty(), "PrefixStore needs a prefix that is not empty");
}

std::string PrefixStore::full(std::string_view key) const {
  check_store_key(key);
  return fmt::format("{}/{}", prefix_, key);
}

Store::Keys PrefixStore::full(const Keys& keys) const {
  Keys result;
  for (const std::string& key : keys) result.push_back(full(key));
  return result;
}

void PrefixStore::set(std::string_view key, std::string_view value) { store_->set(full(key), value); }

std::string PrefixStore::get(std::string_view key, Timeout timeout) { return store_->get(full(key), limit(timeout)); }

int64_t PrefixStore::add(std::string_view key, int64_t amount) { return store_->add(full(key), amount); }

std::string PrefixStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  return store_->compare_set(full(key), expected, desired);
}

bool PrefixStore::delete_key(std::string_view key) { return store_->delete_key(full(key)); }

bool PrefixStore::check(const Keys& keys) { return store_->check(full(keys)); }

void PrefixStore::wait(const Keys& keys, Timeout timeout) { store_->wait(full(keys), limit(timeout)); }

int64_t PrefixStore::num_keys() { return static_cast<int64_t>(store_->list_keys(prefix_ + "/").size()); }

void PrefixStore::append(std::string_view key, std::string_view value) { store_->append(full(key), value); }

std::vector<std::string> PrefixStore::multi_get(const Keys& keys, Timeout timeout) {
  return store_->multi_get(full(keys), limit(timeout));
}

void PrefixStore::multi_set(const Keys& keys, const std::vector<std::string>& values) {
  store_->multi_set(full(keys), values);
}

Store::Keys PrefixStore::list_keys(std::string_view prefix) {
  Keys keys = store_->list_keys(fmt::format("{}/{}", prefix_, prefix));
  for (std::string& key : keys) key.erase(0, prefix_.size() + 1);
  return keys;
}

void PrefixStore::queue_push(std::string_view key, std::string_view value) { store_->queue_push(full(key), value); }

std::optional<std::string> PrefixStore::queue_pop(std::string_view key, bool block, Timeout timeout) {
  return store_->queue_pop(full(key), block, limit(timeout));
}

int64_t PrefixStore::queue_len(std::string_view key) { return store_->queue_len(full(key)); }

void PrefixStore::barrier(std::string_view key, int64_t world_size, Timeout timeout) {
  store_->barrier(full(key), world_size, limit(timeout));
}

std::shared_ptr<Store> PrefixStore::clone() {
  auto copy = std::make_shared<PrefixStore>(prefix_, store_->clone());
  copy->set_timeout(timeout());
  return copy;
}

}  // namespace tutti::comm

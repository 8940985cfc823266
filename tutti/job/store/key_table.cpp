#include "tutti/job/store/key_table.h"

#include "tutti/job/store/store_rules.h"

namespace tutti::comm {

std::string& KeyTable::slot(std::string_view key) {
  const auto found = values_.find(key);
  return found != values_.end() ? found->second : values_.emplace(key, "").first->second;
}

void KeyTable::set(std::string_view key, std::string_view value) {
  check_store_key(key);
  check_store_value(key, value.size());
  slot(key) = value;
}

void KeyTable::set_all(const Store::Keys& keys, const std::vector<std::string>& values) {
  TUTTI_CHECK(keys.size() == values.size(), "store: multi_set with {} keys and {} values", keys.size(), values.size());
  check_store_keys(keys);
  for (size_t i = 0; i < keys.size(); ++i) check_store_value(keys[i], values[i].size());
  for (size_t i = 0; i < keys.size(); ++i) slot(keys[i]) = values[i];
}

const std::string* KeyTable::find(std::string_view key) const {
  check_store_key(key);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

size_t KeyTable::first_missing(const Store::Keys& keys, size_t begin) const {
  check_store_key_count(keys.size());
  size_t at = begin;
  while (at < keys.size() && find(keys[at]) != nullptr) ++at;
  return at;
}

Store::Keys KeyTable::find_missing(const Store::Keys& keys) const {
  check_store_key_count(keys.size());
  Store::Keys missing;
  for (const std::string& key : keys) {
    if (find(key) == nullptr) missing.push_back(key);
  }
  return missing;
}

int64_t KeyTable::add(std::string_view key, int64_t amount) {
  const std::string* stored = find(key);
  const int64_t sum = store_add(key, stored == nullptr ? "" : *stored, amount);
  slot(key) = std::to_string(sum);
  return sum;
}

std::string KeyTable::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const std::string* stored = find(key);
  check_store_value(key, expected.size());
  check_store_value(key, desired.size());
  if (stored == nullptr && !expected.empty()) return std::string(expected);
  if (stored != nullptr && *stored != expected) return *stored;
  slot(key) = desired;
  return std::string(desired);
}

bool KeyTable::erase(std::string_view key) {
  check_store_key(key);
  bool erased = false;
  if (const auto found = values_.find(key); found != values_.end()) {
    values_.erase(found);
    ++num_erased_;
    erased = true;
  }
  if (const auto found = queues_.find(key); found != queues_.end()) {
    queues_.erase(found);
    erased = true;
  }
  return erased;
}

void KeyTable::append(std::string_view key, std::string_view value) {
  const std::string* stored = find(key);
  check_store_value(key, (stored == nullptr ? 0 : stored->size()) + value.size());
  slot(key) += value;
}

Store::Keys KeyTable::list(std::string_view prefix) const {
  Store::Keys keys;
  for (auto it = values_.lower_bound(prefix); it != values_.end() && it->first.starts_with(prefix); ++it) {
    keys.push_back(it->first);
  }
  return keys;
}

void KeyTable::push(std::string_view key, std::string_view value) {
  check_store_key(key);
  check_store_value(key, value.size());
  const auto found = queues_.find(key);
  (found != queues_.end() ? found : queues_.emplace(key, std::deque<std::string>()).first)->second.emplace_back(value);
}

std::optional<std::string> KeyTable::pop(std::string_view key) {
  check_store_key(key);
  const auto found = queues_.find(key);
  if (found == queues_.end()) return std::nullopt;
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  return value;
}

int64_t KeyTable::queue_len(std::string_view key) const {
  check_store_key(key);
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

std::shared_ptr<BarrierRound> KeyTable::arrive(std::string_view key, int64_t world_size) {
  check_store_key(key);
  check_store_world_size(key, world_size);
  auto found = rounds_.find(key);
  if (found == rounds_.end()) {
    found = rounds_.emplace(key, std::make_shared<BarrierRound>(BarrierRound{.world_size = world_size})).first;
  }
  const std::shared_ptr<BarrierRound> round = found->second;
  TUTTI_CHECK(round->world_size == world_size,
              "store: barrier '{}' for a world size of {}, but the {} callers there wait for {}", printable_key(key),
              world_size, round->arrived, round->world_size);
  ++round->arrived;
  if (round->is_complete()) rounds_.erase(found);
  return round;
}

void KeyTable::leave(std::string_view key) {
  const auto found = rounds_.find(key);
  if (found != rounds_.end() && --found->second->arrived == 0) rounds_.erase(found);
}

}  // namespace tutti::comm

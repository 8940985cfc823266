#include "tutti/train/survival/team_store.h"

#include <algorithm>
#include <chrono>

#include "tutti/train/survival/survivors.h"

namespace tutti::train {

constexpr std::chrono::milliseconds kLookAtTeam{50};

void TeamStore::look() {
  if (is_over_()) throw TeamIsOver(fmt::format("{} is over: a rank was lost or joined", prefix()));
}

// In small portions, so that a loss is heard.
template <class Wait>
void TeamStore::in_portions(Timeout timeout, const Wait& wait) {
  const auto deadline = std::chrono::steady_clock::now() + timeout.value_or(this->timeout());
  while (true) {
    look();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      return wait(std::clamp(left, std::chrono::milliseconds(0), kLookAtTeam));
    } catch (const comm::StoreTimeout&) {
      if (left <= kLookAtTeam) throw;
    }
  }
}

void TeamStore::wait(const Keys& keys, Timeout timeout) {
  in_portions(timeout, [&](std::chrono::milliseconds portion) { PrefixStore::wait(keys, portion); });
}

std::string TeamStore::get(std::string_view key, Timeout timeout) {
  wait({std::string(key)}, timeout);
  return PrefixStore::get(key, timeout);
}

std::vector<std::string> TeamStore::multi_get(const Keys& keys, Timeout timeout) {
  wait(keys, timeout);
  return PrefixStore::multi_get(keys, timeout);
}

bool TeamStore::check(const Keys& keys) {
  look();
  return PrefixStore::check(keys);
}

// Whoever times out in the store's barrier is no longer counted, and comes again.
void TeamStore::barrier(std::string_view key, int64_t world_size, Timeout timeout) {
  in_portions(timeout, [&](std::chrono::milliseconds portion) { PrefixStore::barrier(key, world_size, portion); });
}

std::shared_ptr<comm::Store> TeamStore::clone() {
  auto copy = std::make_shared<TeamStore>(prefix(), underlying()->clone(), is_over_);
  copy->set_timeout(this->timeout());
  return copy;
}

}  // namespace tutti::train

#include "tutti/train/team_store.h"

#include <algorithm>
#include <chrono>

#include "tutti/train/survivors.h"

namespace tutti::train {

constexpr std::chrono::milliseconds kLookAtTeam{50};

void TeamStore::look() const {
  if (is_over_()) throw TeamIsOver(fmt::format("{} is over: a rank was lost or joined", prefix()));
}

// In small portions, so that a loss is heard.
void TeamStore::wait(const Keys& keys, Timeout timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout.value_or(this->timeout());
  while (true) {
    look();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      return PrefixStore::wait(keys, std::clamp(left, std::chrono::milliseconds(0), kLookAtTeam));
    } catch (const comm::StoreTimeout&) {
      if (left <= kLookAtTeam) throw;
    }
  }
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

// Counted in keys of its own: who waits in the store's barrier cannot look around.
void TeamStore::barrier(std::string_view key, int64_t world_size, Timeout timeout) {
  const std::string name = fmt::format("team-barrier/{}", key);
  const int64_t arrived = add(name, 1);
  const std::string done = fmt::format("{}/done/{}", name, (arrived - 1) / world_size);
  if (arrived % world_size == 0) set(done, "");
  wait({done}, timeout);
}

std::shared_ptr<comm::Store> TeamStore::clone() {
  auto copy = std::make_shared<TeamStore>(prefix(), underlying()->clone(), is_over_);
  copy->set_timeout(this->timeout());
  return copy;
}

}  // namespace tutti::train

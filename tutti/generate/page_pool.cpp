#include "tutti/generate/page_pool.h"

#include <utility>

#include "tutti/core/error.h"

namespace tutti::generate {

PagePool::PagePool(int64_t pages, std::function<void(uint64_t)> forgotten)
    : states_(static_cast<size_t>(pages)), forgotten_(std::move(forgotten)) {
  for (int32_t page = 0; page < pages; ++page)
    states_[static_cast<size_t>(page)].place = given_back_.insert(given_back_.end(), page);
}

std::optional<int32_t> PagePool::take() {
  if (given_back_.empty()) return std::nullopt;
  const int32_t page = given_back_.front();
  held_.splice(held_.end(), given_back_, given_back_.begin());
  State& state = states_[static_cast<size_t>(page)];
  state.holders = 1;
  if (const uint64_t prefix = std::exchange(state.prefix, 0); prefix != 0) {
    published_.erase(prefix);
    forgotten_(prefix);
  }
  return page;
}

void PagePool::hold(int32_t page) {
  State& state = states_[static_cast<size_t>(page)];
  if (state.holders++ == 0) held_.splice(held_.end(), given_back_, state.place);
}

void PagePool::release(int32_t page) {
  State& state = states_[static_cast<size_t>(page)];
  TUTTI_ASSERT(state.holders > 0, "page {} of the cache is released, and nobody holds it", page);
  if (--state.holders > 0) return;
  // Pages without content to keep are taken before those with some.
  given_back_.splice(state.prefix == 0 ? given_back_.begin() : given_back_.end(), held_, state.place);
}

void PagePool::publish(int32_t page, uint64_t prefix) {
  State& state = states_[static_cast<size_t>(page)];
  if (state.prefix != 0 || !published_.try_emplace(prefix, page).second) return;
  state.prefix = prefix;
}

std::optional<int32_t> PagePool::published(uint64_t prefix) const {
  const auto found = published_.find(prefix);
  if (found == published_.end()) return std::nullopt;
  return found->second;
}

}  // namespace tutti::generate

#include "tutti/generate/prefix_index.h"

namespace tutti::generate {

std::optional<uint64_t> PrefixIndex::find(uint64_t before, std::span<const int32_t> page) const {
  const auto found = numbers_.find({before, {page.begin(), page.end()}});
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

uint64_t PrefixIndex::add(uint64_t before, std::span<const int32_t> page) {
  const auto [entry, is_new] = numbers_.try_emplace({before, {page.begin(), page.end()}}, last_ + 1);
  if (is_new) {
    ++last_;
    places_.emplace(last_, entry);
  }
  return entry->second;
}

void PrefixIndex::remove(uint64_t prefix) {
  const auto place = places_.find(prefix);
  if (place == places_.end()) return;
  numbers_.erase(place->second);
  places_.erase(place);
}

}  // namespace tutti::generate

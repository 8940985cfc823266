#include "tutti/plan/key_slots.h"

namespace tutti::graph {

Attrs with_keys(const Attrs& attrs, std::span<const int32_t> slots, std::span<const RandomKey> keys) {
  Attrs result = attrs;
  size_t next = 0;
  result.visit_keys([&](RandomKey& key) {
    const int32_t slot = slots[next++];
    if (slot < 0) return;
    const RandomKey& now = keys[static_cast<size_t>(slot)];
    key.key = now.key;
    key.step = now.step;
    key.virtual_shard = now.virtual_shard;
    key.stand_in = now.stand_in;
  });
  return result;
}

void draw_keys(std::span<const KeySlot> slots, std::span<const RandomKey> arguments, std::vector<RandomKey>& keys) {
  for (size_t i = keys.size(); i < slots.size(); ++i)
    keys.push_back(slots[i].argument < 0 ? next_random_key(slots[i].module_path)
                                         : arguments[static_cast<size_t>(slots[i].argument)]);
}

std::vector<RandomKey> anonymous_keys(std::span<const KeySlot> slots, std::span<const RandomKey> keys) {
  std::vector<RandomKey> anonymous;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].argument < 0) anonymous.push_back(keys[i]);
  }
  return anonymous;
}

}  // namespace tutti::graph

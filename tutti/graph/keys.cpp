#include "tutti/graph/keys.h"

#include <atomic>
#include <cstring>

#include "tutti/core/hash.h"
#include "tutti/graph/capture_error.h"
#include "tutti/graph/tree.h"

namespace tutti::graph {
namespace {

// The key itself, then step and virtual shard.
struct Words {
  uint64_t first, second;
};

Words words_of(const RandomKey& key) {
  static_assert(offsetof(RandomKey, key) == 0 && offsetof(RandomKey, step) == 8 && offsetof(RandomKey, virtual_shard) == 12);
  Words words{};
  std::memcpy(&words, &key, sizeof(words));
  return words;
}

// A number that attrs do not hold by chance.
uint64_t unlikely() {
  static std::atomic<uint64_t> count{0};
  const uint64_t n = count++;
  return hash64(&n, sizeof(n), 0x5eed'0f7a'11e5'0000) | 0x8000'0001'8000'0001;
}

[[noreturn]] void refuse_changed(const OpDef& op) {
  throw CaptureError(34, fmt::format("{}: the function changed the key, the step or the virtual shard of a RandomKey that it got as an argument, or drew; "
                                     "pass the changed key", op.name));
}

// A key that no call has.
RandomKey unlikely_key(RandomKey key = {}) {
  const Words words{unlikely(), unlikely()};
  std::memcpy(static_cast<void*>(&key), &words, sizeof(words));
  return key;
}

}  // namespace

Attrs with_keys(const Attrs& attrs, std::span<const KeyWord> words, std::span<const RandomKey> keys) {
  Attrs result = attrs;
  uint16_t at = 0;
  result.replace_words([&](int64_t word) {
    for (const KeyWord& w : words) {
      if (w.word != at) continue;
      const Words of_key = words_of(keys[static_cast<size_t>(w.slot)]);
      word = static_cast<int64_t>(w.is_second ? of_key.second : of_key.first);
    }
    ++at;
    return word;
  });
  return result;
}

void draw_keys(std::span<const KeySlot> slots, std::span<const RandomKey> arguments, std::vector<RandomKey>& keys) {
  for (size_t i = keys.size(); i < slots.size(); ++i)
    keys.push_back(slots[i].argument < 0 ? next_random_key(slots[i].module_path) : arguments[static_cast<size_t>(slots[i].argument)]);
}

std::vector<RandomKey> anonymous_keys(std::span<const KeySlot> slots, std::span<const RandomKey> keys) {
  std::vector<RandomKey> anonymous;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].argument < 0) anonymous.push_back(keys[i]);
  }
  return anonymous;
}

void refuse_returned_keys(const Leaves& results) {
  if (results.keys.empty()) return;
  throw CaptureError(34, "the function returns a RandomKey, which is another one in each call; return what was drawn with it, or make the key outside");
}

RandomKey TraceKeys::next_key(std::string_view path) {
  if (!part_.empty()) {
    throw CaptureError(34, fmt::format("'{}' draws random numbers with an anonymous key, and may run or not: which key comes next would depend on that. "
                                       "Draw outside of it", part_));
  }
  const bool is_inside = path.size() > base_.size() && path.starts_with(base_) && path[base_.size()] == '.';
  slots_.push_back({.stand_in = unlikely_key(), .module_path = std::string(base_.empty() ? path : is_inside ? path.substr(base_.size() + 1) : "")});
  return slots_.back().stand_in;
}

std::function<void()> TraceKeys::mark() {
  return [this, count = slots_.size()] { slots_.resize(count); };
}

std::vector<RandomKey> TraceKeys::add_arguments(std::span<const RandomKey> keys) {
  std::vector<RandomKey> stand_ins;
  for (size_t i = 0; i < keys.size(); ++i) {
    const RandomKey key = unlikely_key(keys[i]);
    slots_.push_back({.stand_in = key, .argument = static_cast<int32_t>(i)});
    stand_ins.push_back(key);
  }
  return stand_ins;
}

std::vector<KeyWord> TraceKeys::words_in(const OpDef& op, const Attrs& attrs) const {
  std::vector<KeyWord> found;
  const std::span<const std::byte> bytes = attrs.bytes();
  const auto word_at = [&](size_t at) {
    uint64_t word = 0;
    if (at + 8 <= bytes.size()) std::memcpy(&word, bytes.data() + at, 8);
    return word;
  };
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const Words words = words_of(slots_[slot].stand_in);
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
      const uint64_t word = word_at(at);
      const auto index = static_cast<uint16_t>(at / 8);
      if (word == words.first) {
        found.push_back({index, false, static_cast<int32_t>(slot)});
        if (word_at(at + 8) != words.second) refuse_changed(op);
        found.push_back({static_cast<uint16_t>(index + 1), true, static_cast<int32_t>(slot)});
      } else if (static_cast<uint32_t>(word) == static_cast<uint32_t>(words.second) || word >> 32 == words.second >> 32) {
        if (at == 0 || word_at(at - 8) != words.first) refuse_changed(op);
      }
    }
  }
  return found;
}

}  // namespace tutti::graph

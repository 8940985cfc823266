#include "tutti/graph/keys.h"

#include <atomic>

#include "tutti/core/hash.h"
#include "tutti/graph/tree.h"
#include "tutti/plan/capture_error.h"

namespace tutti::graph {
namespace {

// Numbers for stand-ins, each used once in the process.
int64_t next_number() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

[[noreturn]] void refuse_changed(const OpDef& op) {
  throw CaptureError(34, fmt::format("{}: the function changed the key, the step or the virtual shard of a RandomKey "
                                     "that it got as an argument, or drew; "
                                     "pass the changed key",
                                     op.name));
}

// A key that stands for another one in each call, and that no call has.
RandomKey stand_in_for(RandomKey key) {
  const int64_t number = next_number();
  const auto word = [&](uint64_t which) {
    const int64_t words[] = {number, static_cast<int64_t>(which)};
    return hash64(words, sizeof(words), 0x5eed'0f7a'11e5'0000);
  };
  key.key = word(0);
  key.step = static_cast<uint32_t>(word(1)) | 0x8000'0000;
  key.virtual_shard = static_cast<uint32_t>(word(2)) | 0x8000'0000;
  key.stand_in = number;
  return key;
}

bool is_same_draw(const RandomKey& a, const RandomKey& b) {
  return a.key == b.key && a.step == b.step && a.virtual_shard == b.virtual_shard;
}

}  // namespace

void refuse_returned_keys(const Leaves& results) {
  if (results.keys.empty()) return;
  throw CaptureError(34,
                     "the function returns a RandomKey, which is another one in each call; return what was drawn with "
                     "it, or make the key outside");
}

RandomKey TraceKeys::next_key(std::string_view path) {
  if (!part_.empty()) {
    throw CaptureError(34, fmt::format("'{}' draws random numbers with an anonymous key, and may run or not: which key "
                                       "comes next would depend on that. "
                                       "Draw outside of it",
                                       part_));
  }
  const bool is_inside = path.size() > base_.size() && path.starts_with(base_) && path[base_.size()] == '.';
  slots_.push_back({.stand_in = stand_in_for({}),
                    .module_path = std::string(base_.empty() ? path
                                               : is_inside   ? path.substr(base_.size() + 1)
                                                             : "")});
  return slots_.back().stand_in;
}

std::function<void()> TraceKeys::mark() {
  return [this, count = slots_.size()] { slots_.resize(count); };
}

std::vector<RandomKey> TraceKeys::add_arguments(std::span<const RandomKey> keys) {
  std::vector<RandomKey> stand_ins;
  for (size_t i = 0; i < keys.size(); ++i) {
    const RandomKey key = stand_in_for(keys[i]);
    slots_.push_back({.stand_in = key, .argument = static_cast<int32_t>(i)});
    stand_ins.push_back(key);
  }
  return stand_ins;
}

std::vector<int32_t> TraceKeys::slots_in(const OpDef& op, const Attrs& attrs) const {
  std::vector<int32_t> found;
  bool any = false;
  Attrs(attrs).visit_keys([&](RandomKey& key) {
    int32_t& slot = found.emplace_back(-1);
    for (size_t i = 0; i < slots_.size() && slot < 0; ++i) {
      const RandomKey& stand_in = slots_[i].stand_in;
      const bool is_it = key.stand_in == stand_in.stand_in;
      // One that was made from a stand-in's numbers, field by field.
      const bool is_like =
          key.key == stand_in.key || key.step == stand_in.step || key.virtual_shard == stand_in.virtual_shard;
      if ((is_it || is_like) && !is_same_draw(key, stand_in)) refuse_changed(op);
      if (is_it || is_like) slot = static_cast<int32_t>(i);
    }
    any = any || slot >= 0;
  });
  if (!any) found.clear();
  return found;
}

}  // namespace tutti::graph

// Random keys in a trace. They are stand-ins for the keys of each call: keys among the arguments, or the rank's next anonymous
// keys, which a call draws as an eager run would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/random_key.h"

namespace tutti::graph {

struct KeySlot {
  RandomKey stand_in;
  int32_t argument = -1;  // of the keys among the arguments; -1: the next anonymous one
  // For an anonymous one: the module of the draw, inside the module in which the function was called.
  std::string module_path = "";
};

// A word of the attrs of a call that belongs to a key.
struct KeyWord {
  uint16_t word;
  bool is_second;  // step and virtual shard; else the key itself
  int32_t slot;
};

// Attrs for a call with these keys, per slot.
Attrs with_keys(const Attrs& attrs, std::span<const KeyWord> words, std::span<const RandomKey> keys);

// Adds the keys that a call has for the slots behind those that it has already.
void draw_keys(std::span<const KeySlot> slots, std::span<const RandomKey> arguments, std::vector<RandomKey>& keys);

// The anonymous keys of a call, in the order in which it drew them.
std::vector<RandomKey> anonymous_keys(std::span<const KeySlot> slots, std::span<const RandomKey> keys);

class TraceKeys final : public KeySource {
 public:
  // part: of a function that runs by itself, and therefore cannot draw.
  explicit TraceKeys(std::string part = "") : part_(std::move(part)) {}
  RandomKey next_key(std::string_view module_path) override;
  std::function<void()> mark() override;
  // The module in which the function is called; paths of draws are kept inside it, because other calls come from elsewhere.
  void set_base(std::string_view module_path) { base_ = module_path; }
  // Stand-ins for those of the arguments.
  std::vector<RandomKey> add_arguments(std::span<const RandomKey> keys);
  // Where the attrs of a call hold a stand-in. CaptureError when somebody changed one of its fields.
  std::vector<KeyWord> words_in(const OpDef& op, const Attrs& attrs) const;

  const std::vector<KeySlot>& slots() const { return slots_; }
  // Those of the trace whose calls are traced again.
  void set_slots(std::vector<KeySlot> slots) { slots_ = std::move(slots); }

 private:
  std::string part_, base_;
  std::vector<KeySlot> slots_;
};

}  // namespace tutti::graph

// Random keys in a trace. They are stand-ins for the keys of each call: keys among the arguments, or the rank's next
// anonymous keys, which a call draws as an eager run would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/random_key.h"
#include "tutti/plan/key_slots.h"

namespace tutti::graph {

class TraceKeys final : public KeySource {
 public:
  // part: of a function that runs by itself, and therefore cannot draw.
  explicit TraceKeys(std::string part = "") : part_(std::move(part)) {}
  RandomKey next_key(std::string_view module_path) override;
  std::function<void()> mark() override;
  // The module in which the function is called; paths of draws are kept inside it, because other calls come from
  // elsewhere.
  void set_base(std::string_view module_path) { base_ = module_path; }
  // Stand-ins for those of the arguments.
  std::vector<RandomKey> add_arguments(std::span<const RandomKey> keys);
  // Per random key among the attrs of a call its slot here, or -1 for a key that is none of this trace's stand-ins;
  // empty when all are such. CaptureError when somebody changed the key, the step or the virtual shard of a stand-in.
  std::vector<int32_t> slots_in(const OpDef& op, const Attrs& attrs) const;

  const std::vector<KeySlot>& slots() const { return slots_; }
  // Takes the slots of the trace whose calls are traced again.
  void set_slots(std::vector<KeySlot> slots) { slots_ = std::move(slots); }

 private:
  std::string part_, base_;
  std::vector<KeySlot> slots_;
};

}  // namespace tutti::graph

// The random keys of a plan: each call puts its own keys in the place of the stand-ins that the plan was made with.
#pragma once

#include <cstdint>
#include <span>
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

// Attrs for a call with these keys, per slot; `slots` are those of the random keys among the attrs, in the order of the
// fields.
Attrs with_keys(const Attrs& attrs, std::span<const int32_t> slots, std::span<const RandomKey> keys);

// Adds the keys that a call has for the slots behind those that it has already.
void draw_keys(std::span<const KeySlot> slots, std::span<const RandomKey> arguments, std::vector<RandomKey>& keys);

// The anonymous keys of a call, in the order in which it drew them.
std::vector<RandomKey> anonymous_keys(std::span<const KeySlot> slots, std::span<const RandomKey> keys);

}  // namespace tutti::graph

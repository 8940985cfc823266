// The schemas of ops: what a package and the program that opens it must agree on for each op that it calls.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/ops/engine/op_def.h"

namespace tutti::deploy {

// The type of the attrs of the op's calls, by its samples; null when they have none. For those who make packages.
const AttrsType* attrs_type_of(const OpDef& op);
// The same where it has that name, else null. The runtime, which has no samples, takes any type of that name.
const AttrsType* attrs_type_of(const OpDef& op, std::string_view name);

// A number for the name, operands, effects and attrs of the op: equal schemas have equal numbers. attrs: null when its
// calls have none.
uint64_t schema_of(const OpDef& op, const AttrsType* attrs);

// The attrs as the name of their type and their fields, and what such a text says. UsageError when it says nothing.
std::string text_of(const Attrs& attrs);
Attrs attrs_of(const OpDef& op, std::string_view text);

}  // namespace tutti::deploy

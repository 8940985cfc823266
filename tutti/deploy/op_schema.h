// The schemas of ops: what a package and the program that opens it must agree on for each op that it calls.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/ops/engine/op_def.h"

namespace tutti::deploy {

// The type of the attrs of the op's calls, by its samples; null when they have none.
const AttrsType* attrs_type_of(const OpDef& op);

// A number for the name, operands, effects and attrs of the op: equal schemas have equal numbers.
uint64_t schema_of(const OpDef& op);

}  // namespace tutti::deploy

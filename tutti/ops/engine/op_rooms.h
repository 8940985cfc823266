// Ops of the rooms above this one.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// Adds ops to the op table, behind those it has. Rooms call it while the statics of the program are initialized, before
// anybody reads the table.
void join_op_table(std::span<const OpDef* const> ops);

}  // namespace tutti

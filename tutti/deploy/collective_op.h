// The ops with which ranks communicate, as far as packages hold their calls: those of comm/functional/, or in the
// runtime of packages those of runtime_only/collective_ops.cpp.
#pragma once

#include "tutti/deploy/collective_attrs.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::deploy {

using comm::functional::CallAttrs;

// Whoever has the rows calls it while the statics of the program are initialized, maybe before the op itself is: only
// its address is kept.
void declare_collective(const OpDef& op);
// Whether the op is one of them and ordered. Its calls then have CallAttrs.
bool is_collective(const OpDef& op);
// The attrs of a call. Null when they are not those of a collective, or name no group.
const CallAttrs* collective_attrs(const OpDef& op, const Attrs& attrs);

}  // namespace tutti::deploy

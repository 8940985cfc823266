// Calls on which the ops of attention are tested.
#pragma once

#include <vector>

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

std::vector<Sample> samples(const OpDef& sdpa, bool backward);
// Nodes of `count` chunks for the same queries, one of which sees nothing of the first.
std::vector<Sample> node_samples(int count, const Attrs& attrs);

}  // namespace tutti::attention

// Results of branches and loop bodies.
#pragma once

#include "tutti/autograd/tape.h"

namespace tutti::graph {

// `t` as a value of its own: cotangents of its uses after the branch are summed before they meet those of uses inside.
// So gradients have the same bits whether the branch runs directly or as a graph of its own. Owns its memory when
// `unshared`: `t` is copied where somebody else holds it.
Tensor as_result(Tensor&& t, bool unshared);

}  // namespace tutti::graph

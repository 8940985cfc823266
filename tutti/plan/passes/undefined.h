// Pass: specializes a backward for undefined cotangents.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// The rule of a backward op by op when some results of the function were not used: it adds no zeros for them, runs no
// op whose cotangents are all undefined, and leaves undefined the gradients that only they lead to.
//
// is_cotangent, undefined: per buffer. Afterwards a sum has only the terms that are defined, and a sum of one is that
// term, with its dtype and what follows from that, and results are undefined (buffer -1) that depend on undefined
// cotangents only. An op that takes both kinds and is no sum takes zeros, so the graph may still read an undefined
// cotangent: what it holds then must be zero. Bits are those of an eager backward, unless cotangents of two dtypes
// meet: where the dtype of their sum cannot be undone, the sum takes zeros too.
Graph without_undefined(const Graph& graph, const std::vector<bool>& is_cotangent, const std::vector<bool>& undefined);

}  // namespace tutti::graph

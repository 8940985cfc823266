// cond and switch_ in a trace.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/graph/control.h"
#include "tutti/graph/trace.h"

namespace tutti::graph {

struct Branch {
  std::string name;
  const TensorFn* fn;
};

// Traces every branch and appends a node that runs the one `selector` says: a boolean (the first when true) or its
// number. Its gradient is another such node, on the same selector. what: "cond", for errors; lives as long as the
// process.
std::vector<Tensor> trace_choice(Trace& outer, const char* what, const Tensor& selector,
                                 std::span<const Branch> branches, const std::vector<Tensor>& operands);

}  // namespace tutti::graph

// while_loop and scan in a trace.
#pragma once

#include <vector>

#include "tutti/graph/control.h"
#include "tutti/graph/trace.h"

namespace tutti::graph {

// Appends a node that goes round at run time. It has no gradient: backward through it is a CaptureError.
std::vector<Tensor> trace_while(Trace& outer, const TensorFn& again, const TensorFn& body,
                                const std::vector<Tensor>& carried);
// `steps` >= 1 of `f` over dim 0 of xs.
ScanStep trace_scan(Trace& outer, const ScanFn& f, const std::vector<Tensor>& init, const std::vector<Tensor>& xs,
                    int64_t steps);

// Throws UsageError unless a body gives back what it was given, in number, dtypes and shapes.
void check_carried(const char* what, std::span<const Tensor> before, std::span<const Tensor> after);
// Throws UsageError unless `t` is a boolean without dims.
void check_predicate(const char* what, const char* name, const Tensor& t);

}  // namespace tutti::graph

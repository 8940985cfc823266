// Whether what ranks are said to hold alike is alike.
#pragma once

#include "tutti/dist/spec.h"
#include "tutti/tensor/tensor.h"

namespace tutti::dist {

// UsageError, on all ranks of the mesh alike, when the parts of ranks that hold replicas differ in a bit. Every rank of
// the mesh calls it. `what` begins the message: "from_local: the part"; `remedy` ends it.
void require_replicas(const Tensor& local, const DTensorSpec& spec, const DeviceMesh& mesh, std::string_view what,
                      std::string_view remedy);

}  // namespace tutti::dist

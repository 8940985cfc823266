// What runs before the host reads the elements of a tensor through item(), to_string, copies or to_contiguous.
//
// Rooms above whose tensors may not be complete yet (results of collectives under way) wait there. Reading through
// data() or raw_data() does not pass here.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

using HostReadHook = void (*)(const Tensor& t);

// InternalError when there is one already.
void install_host_read_hook(HostReadHook hook);
// Tensors that take part in no dispatch stage cost one test.
void before_host_read(const Tensor& t);

}  // namespace tutti

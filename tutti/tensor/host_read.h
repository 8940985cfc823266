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

// Knows what the host reads on a thread where tensors may stand for memory that does not exist (a trace).
class HostReads {
 public:
  // The elements of `t`, which may have memory or not; or throws.
  virtual Tensor elements_of(const Tensor& t) = 0;
  // The one of this thread; null: tensors are read as they are.
  static HostReads* current();
  // Gives the one before.
  static HostReads* set_current(HostReads* reads);

 protected:
  ~HostReads() = default;
};

// What item(), to_contiguous() and to_string() read in the place of `t`: itself, when it is complete.
Tensor host_readable(const Tensor& t);

}  // namespace tutti

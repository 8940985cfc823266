// A hook that runs before the host reads the elements of a tensor through item(), to_string(), copies or to_contiguous().
//
// Libraries above this one whose tensors may be incomplete, such as results of collectives in progress, wait in it. Reading
// through data() or raw_data() does not call it.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

using HostReadHook = void (*)(const Tensor& t);

// InternalError when a hook is already installed.
void install_host_read_hook(HostReadHook hook);
// Calls the hook. For a tensor that takes part in no dispatch stage this is a single test.
void before_host_read(const Tensor& t);

// Supplies what the host reads on a thread where tensors may stand for memory that does not exist (in a trace).
class HostReads {
 public:
  // A tensor with the elements of `t`, which may or may not have memory; may throw.
  virtual Tensor elements_of(const Tensor& t) = 0;
  // Returns the hook of this thread; when it is null, tensors are read directly.
  static HostReads* current();
  // Returns the previous one.
  static HostReads* set_current(HostReads* reads);

 protected:
  ~HostReads() = default;
};

// The tensor that item(), to_contiguous() and to_string() read in place of `t`; `t` itself when it is complete.
Tensor host_readable(const Tensor& t);

}  // namespace tutti

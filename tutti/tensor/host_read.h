// Steps taken before the host reads the elements of a tensor through item(), to_string(), copies or to_contiguous().
//
// A read of a pending storage waits until it is present, and a trace may answer a read of a tensor that it stands for.
// Reading through data() or raw_data() does neither.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Waits until the bytes of `t` are written. Throws why they never will be.
inline void before_host_read(const Tensor& t) { t.storage()->wait(); }

// Supplies what the host reads on a thread where tensors may stand for memory that does not exist (in a trace). It
// belongs to the thread and not to a state of storages, because a trace must also see the reads of tensors that are in
// memory.
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

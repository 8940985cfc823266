// Symmetric memory in the collectives of a group: peers read it in place instead of copying it.
#pragma once

#include <memory>

#include "tutti/comm/process_group.h"
#include "tutti/symm/handle.h"

namespace tutti::comm {

// The SymmGroup of `group`; every call returns the same one. Its timeout is that which the group has at the first call.
symm::SymmGroup symm_group(ProcessGroup& group);

// Registers `tensor` (from symm::empty_strided_p2p) with the group's collectives while this object lives: peers read
// inputs that lie in it in place. Collective: all ranks must register tensors of equal size in the same order. A group
// whose transport does not share memory keeps copying; is_direct() tells which is the case.
class SymmetricBuffer {
 public:
  SymmetricBuffer(ProcessGroup& group, const Tensor& tensor);
  ~SymmetricBuffer();
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;

  const Tensor& tensor() const { return tensor_; }
  const std::shared_ptr<symm::SymmHandle>& handle() const { return handle_; }
  bool is_direct() const { return region_ >= 0; }

 private:
  std::shared_ptr<ProcessGroup> group_;
  Tensor tensor_;
  std::shared_ptr<symm::SymmHandle> handle_;
  int64_t region_ = -1;
};

}  // namespace tutti::comm

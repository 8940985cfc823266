// Symmetric memory for the collectives of a group: peers read it in place instead of through copies.
#pragma once

#include <memory>

#include "tutti/comm/process_group.h"
#include "tutti/comm/symm/handle.h"

namespace tutti::comm {

// The group as symmetric memory sees it; the same one each time.
symm::SymmGroup symm_group(ProcessGroup& group);

// Makes `tensor` (from symm::empty_strided_p2p) known to the group's collectives while this lives: offers that lie in it
// are read in place. Collective: all ranks register their tensors of equal size in the same order. A group whose transport
// does not share memory keeps copying; is_direct() tells.
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

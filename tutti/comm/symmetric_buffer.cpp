#include "tutti/comm/symmetric_buffer.h"

#include "tutti/core/error.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm {

symm::SymmGroup symm_group(ProcessGroup& group) {
  const std::lock_guard lock(group.symm_mutex_);
  if (!group.symm_) {
    TUTTI_CHECK(group.store() != nullptr, "symmetric memory of group '{}': its ranks have no store to meet in",
                group.name());
    group.symm_ = symm::SymmGroup(symm::make_group_key(group.key(), group.world_ranks(), 0), group.rank(), group.size(),
                                  group.store(), group.world_ranks(), group.timeout(), group.name());
    if (group.backend(DeviceKind::cpu).name() == "threads") group.symm_.select_backend("threads");
  }
  return group.symm_;
}

SymmetricBuffer::SymmetricBuffer(ProcessGroup& group, const Tensor& tensor)
    : group_(group.shared_from_this()), tensor_(tensor), handle_(symm::rendezvous(tensor, symm_group(group))) {
  std::vector<std::byte*> bases;
  for (void* base : handle_->buffer_ptrs()) bases.push_back(static_cast<std::byte*>(base));
  region_ = group_->backend(DeviceKind::cpu).add_region(bases, handle_->buffer_size());
}

SymmetricBuffer::~SymmetricBuffer() {
  if (region_ >= 0 && !group_->is_in_child()) group_->backend(DeviceKind::cpu).remove_region(region_);
}

}  // namespace tutti::comm

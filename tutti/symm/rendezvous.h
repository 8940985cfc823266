// Rendezvous: the ranks of a group give each other access to an allocation.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include "tutti/symm/group.h"
#include "tutti/symm/handle.h"

namespace tutti::comm::symm {

// The tensor is not in symmetric memory.
class NotSymmetricError : public UsageError {
 public:
  using UsageError::UsageError;
};

// Collective over `group` on the first call for a tensor; later calls return the same handle immediately, without
// communication. The tensor may be a view; its offset in the allocation must be the same on all ranks, as must the size
// in bytes, the order of allocations for the group, backend, version, host and user. One allocation may be used with
// several groups.
//
// Either all ranks succeed, or all throw and nothing remains: UsageError when they disagree (the same text on all
// ranks), NotSymmetricError naming the ranks whose tensor is not symmetric, TimeoutError naming the ranks that did not
// call, PeerError naming one that died. Without `timeout` the timeout of the group applies.
std::shared_ptr<SymmHandle> rendezvous(const Tensor& tensor, const SymmGroup& group,
                                       std::optional<std::chrono::milliseconds> timeout = {});
// The same with the group given at allocation. UsageError when there was none or it no longer exists.
std::shared_ptr<SymmHandle> rendezvous(const Tensor& tensor);
// The same, but returns null on all ranks when the tensor is symmetric on none of them, so that all can take another
// path. A null result is not cached: the next call is collective again.
std::shared_ptr<SymmHandle> try_rendezvous(const Tensor& tensor, const SymmGroup& group,
                                           std::optional<std::chrono::milliseconds> timeout = {});

// For the implementation of symmetric memory. rendezvous_for(): the ranks must also agree on `purpose`. known_handle():
// the handle of a tensor after its rendezvous, else null; local.
std::shared_ptr<SymmHandle> rendezvous_for(std::string_view purpose, const Tensor& tensor, const SymmGroup& group);
std::shared_ptr<SymmHandle> known_handle(const Tensor& tensor, const SymmGroup& group);

// Prepares the group's backend before memory is allocated: opens its library and, for nccl and nvshmem, connects the
// ranks. Collective. May be repeated, for example after a failure. Other backends do not need this call.
void connect_group(const SymmGroup& group, std::optional<std::chrono::milliseconds> timeout = {});

}  // namespace tutti::comm::symm

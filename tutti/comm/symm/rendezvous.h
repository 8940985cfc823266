// Rendezvous: the ranks of a group give each other access to an allocation.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include "tutti/comm/symm/group.h"
#include "tutti/comm/symm/handle.h"

namespace tutti::comm::symm {

// The tensor does not lie in symmetric memory.
class NotSymmetricError : public UsageError {
 public:
  using UsageError::UsageError;
};

// Collective over `group` on the first call for a tensor; later calls return the same handle at once, without a word to
// the others. The tensor may be a view; its offset in the allocation must be the same on all ranks, as must the sizes in
// bytes, the order of allocations for the group, backend, version, host and user. One allocation may meet several groups.
//
// Either all ranks succeed or all throw and nothing is left: UsageError when they disagree (the same text on all ranks),
// NotSymmetricError naming the ranks whose tensor is none, TimeoutError naming the ranks that did not come, PeerError
// naming one that died. `timeout` absent means the group's.
std::shared_ptr<SymmHandle> rendezvous(const Tensor& tensor, const SymmGroup& group,
                                       std::optional<std::chrono::milliseconds> timeout = {});
// With the group given at allocation; UsageError when there was none or it is gone.
std::shared_ptr<SymmHandle> rendezvous(const Tensor& tensor);
// Null when the tensor is not symmetric on any rank, so that all of them can take another path. Collective; not cached
// when null.
std::shared_ptr<SymmHandle> try_rendezvous(const Tensor& tensor, const SymmGroup& group,
                                           std::optional<std::chrono::milliseconds> timeout = {});

// For the files of this folder: with what the ranks meet for, in which they must agree; and the handle of a tensor that has
// met already, null of others. Local.
std::shared_ptr<SymmHandle> rendezvous_for(std::string_view purpose, const Tensor& tensor, const SymmGroup& group);
std::shared_ptr<SymmHandle> known_handle(const Tensor& tensor, const SymmGroup& group);

// Makes ready what the group's backend needs before memory is allocated: opens its library and, for nccl and nvshmem,
// connects the ranks. Collective; what is done already is not done again, so it can be retried after a failure. Other
// backends need no call.
void connect_group(const SymmGroup& group, std::optional<std::chrono::milliseconds> timeout = {});

}  // namespace tutti::comm::symm

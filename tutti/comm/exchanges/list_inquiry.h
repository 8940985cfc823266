// The inquiry that follows when the ranks' lists of tensors differ: finds out which tensor differs, and what each rank
// passed.
//
// A call's record holds a hash of the list. When nothing else differs, all ranks know this at the same time and
// exchange their lists in one more round. Bytes on the wire: 80 for each tensor and pair of ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/collective.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {

struct ListedTensor {
  DType dtype;
  Extents sizes;
};
uint64_t hash_of(const std::vector<ListedTensor>& list);

// Ends on all ranks with a UsageError that names tensor and ranks; `call` is the record of this rank's call. Each
// tensor of the call has `entries` entries in the list: 1, or one for the output of each rank.
std::unique_ptr<Collective> make_list_inquiry(const CallRecord& call, const std::string& group,
                                              const std::vector<ListedTensor>& list, size_t entries, int ranks);

}  // namespace tutti::comm

#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/ops/reshape.h"

namespace tutti::comm::functional {

// An all_to_all_single in which each rank sends all of x to one rank; its gradient is the inverse by itself.
Tensor permute_tensor(const Tensor& x, std::span<const int64_t> destinations, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_to_all_v_single, [&] {
    const int64_t ranks = group->size();
    TUTTI_CHECK_EQ(static_cast<int64_t>(destinations.size()), ranks,
                   "permute_tensor: {} destinations for a group of {} ranks; expected one per rank",
                   destinations.size(), ranks);
    std::vector<int64_t> source(destinations.size(), -1);
    for (size_t p = 0; p < destinations.size(); ++p) {
      const int64_t to = destinations[p];
      TUTTI_CHECK(to >= 0 && to < ranks, "permute_tensor: the destination of rank {} is {}; legal: 0 to {}", p, to,
                  ranks - 1);
      int64_t& from = source[static_cast<size_t>(to)];
      TUTTI_CHECK(
          from < 0,
          "permute_tensor: ranks {} and {} have the same destination {}; destinations are a permutation of the ranks",
          from, p, to);
      from = static_cast<int64_t>(p);
    }
    const size_t rank = static_cast<size_t>(group->rank());
    const Tensor flat = reshape(x, {x.numel()});
    std::vector<int64_t> output_splits(destinations.size(), 0), input_splits(destinations.size(), 0);
    output_splits[static_cast<size_t>(source[rank])] = flat.numel();
    input_splits[static_cast<size_t>(destinations[rank])] = flat.numel();
    return reshape(all_to_all_single(flat, output_splits, input_splits, group), x.sizes());
  });
}

}  // namespace tutti::comm::functional

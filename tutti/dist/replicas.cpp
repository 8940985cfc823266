#include "tutti/dist/replicas.h"

#include <algorithm>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/ops/copy.h"

namespace tutti::dist {

void require_replicas(const Tensor& local, const DTensorSpec& spec, const DeviceMesh& mesh, std::string_view what,
                      std::string_view remedy) {
  std::vector<int> axes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) axes.push_back(axis);
  const auto group = mesh.group_over(axes);
  const Tensor dense = to_contiguous(local);
  const std::string bytes(static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.nbytes()));
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!spec.placements()[static_cast<size_t>(axis)].is_replicate()) continue;
    const std::string first = mesh.group(axis)->broadcast_bytes(bytes, 0);
    const std::vector<std::string> same = group->all_gather_bytes(first == bytes ? "1" : "0");
    const auto other = std::find(same.begin(), same.end(), "0");
    TUTTI_CHECK(other == same.end(),
                "{}: mesh dim {} is said to hold replicas, and that of rank {} differs from the first one{}", what,
                axis, mesh.ranks()[static_cast<size_t>(other - same.begin())], remedy);
  }
}

}  // namespace tutti::dist

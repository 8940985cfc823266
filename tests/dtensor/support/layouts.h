// All layouts of a tensor on a mesh, and words that all ranks say.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/dtensor/support/mesh_ranks.h"

namespace tutti::dist {

// Every choice of one of `each` for every mesh dim; choices that no tensor can have together, such as two kinds of
// terms, are for the caller to leave out.
inline std::vector<Placements> choices_of(const std::vector<Placement>& each, size_t axes) {
  std::vector<Placements> all{{}};
  for (size_t axis = 0; axis < axes; ++axis) {
    std::vector<Placements> longer;
    for (const Placements& p : all) {
      for (const Placement& next : each) {
        longer.push_back(p);
        longer.back().push_back(next);
      }
    }
    all = std::move(longer);
  }
  return all;
}

inline std::vector<int> axes_of_mesh(const DeviceMesh& mesh) {
  std::vector<int> axes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) axes.push_back(axis);
  return axes;
}

// Whether `mine` is true on all ranks; throws where ranks differ.
inline bool agreed(const Mesh& mesh, bool mine, const std::string& about) {
  const std::vector<std::string> all = mesh->group_over(axes_of_mesh(*mesh))->all_gather_bytes(mine ? "1" : "0");
  if (std::any_of(all.begin(), all.end(), [&](const std::string& other) { return other != all[0]; }))
    throw std::logic_error("ranks differ in whether it is an error; " + about);
  return mine;
}

// The difference between this rank's part of `t` and the part of `whole` that it should hold; "" where there is none.
inline std::string difference_of_part(const Tensor& t, const Tensor& whole) {
  const DTensorSpec& spec = spec_of(t);
  const Tensor wanted = distribute_tensor(whole, mesh_of(t), spec.placements(),
                                          {.layout = {.order = spec.order(), .cut = spec.cut()}, .src_data_rank = -1});
  return difference(to_local(t), to_local(wanted));
}

}  // namespace tutti::dist

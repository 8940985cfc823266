// Calls of functions that ranks share because they are threads of one process, in many layouts and sizes, compared with
// one rank.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/dtensor/support/mesh_ranks.h"

namespace tutti::dist {

// A hang ends as an error.
inline const MeshOptions kShortTimeout{.timeout = std::chrono::seconds(60)};
inline const std::vector<std::vector<int64_t>> kSharedMeshes{{2}, {3}, {4}, {5}, {2, 2}, {1, 3}};
// Growing, then again; some are cut evenly, some not, and some ranks have no rows.
inline constexpr int64_t kSharedRows[] = {2, 5, 3, 8, 5, 1, 7};

// A function of two tensors of [rows, 6], the second of probabilities, as a user calls it.
struct SharedFunction {
  std::string name;
  std::function<Tensor(const Tensor&, const Tensor&)> fn;
  std::function<Tensor(const Tensor&, const Tensor&)> eager =
      nullptr;  // what it must equal on one rank; null: fn itself
};

std::vector<Placements> layouts_on(const Mesh& mesh);
Tensor shared_first(int64_t rows);
Tensor shared_second(int64_t rows);
// The tensor, of which every rank has all, in that layout.
Tensor on_ranks(const Mesh& mesh, const Tensor& whole, Placements placements);
// Throws unless the elements of `t`, distributed or not, are those of `whole`.
void require_whole(const Tensor& t, const Tensor& whole, const std::string& about);

// Calls every function in every layout and size, on ranks that share it with each other and with those that came
// before, and compares results and gradients of both operands with those of one rank.
void check_shared(const std::vector<int64_t>& mesh, const std::vector<SharedFunction>& all);

}  // namespace tutti::dist

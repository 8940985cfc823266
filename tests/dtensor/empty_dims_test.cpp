// Ops along dims of distributed tensors of which some ranks, or all, have nothing: the bits of one rank in every
// layout, and the same refusals.
#include "tests/dtensor/support/layouts.h"
#include "tests/support/ops_over_dims.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/reduction.h"

namespace tutti::dist {
namespace {

void compare(const Mesh& mesh, const OpOverDims& op, const Extents& shape, const Dims& dims,
             const Placements& placements, DType dtype) {
  const std::string about = fmt::format("{} over [{}] of {}@{} on {}", op.name, fmt::join(dims, ", "), shape,
                                        to_string(placements), mesh->to_string());
  const Tensor whole = sample(shape, dtype), t = distribute_tensor(whole, mesh, placements, {.src_data_rank = -1});
  std::vector<Tensor> wanted, results;
  const std::string said = message_of([&] { wanted = op.run(whole, dims); });
  std::string fault;
  try {
    const std::string other = message_of([&] { results = op.run(t, dims); });
    if ((other == "no error") != (said == "no error")) fault = "one rank: " + said + "; the mesh: " + other;
  } catch (const std::exception& error) {
    fault = error.what();
  }
  require_none(fault, about);
  require_none(results.size() == wanted.size() ? "" : "other results", about);
  for (size_t k = 0; k < results.size(); ++k)
    require_none(difference(full_tensor(results[k]), wanted[k]), about + " gave " + spec_of(results[k]).to_string());
}

class EmptyDims : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, EmptyDims,
                         ::testing::Values(std::vector<int64_t>{1}, std::vector<int64_t>{2}, std::vector<int64_t>{3},
                                           std::vector<int64_t>{5}));

TEST_P(EmptyDims, HaveTheBitsOfOneRankInEveryLayout) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    const bool all = mesh->size() == 2;
    for (const OpOverDims& op : ops_over_dims()) {
      if (!all && op.name.ends_with("keepdim")) continue;
      for (const Extents& shape : all ? shapes_of({0, 2, 3}, 3) : shapes_of({0, 2}, 3)) {
        for (const Dims& dims : sets_of_dims(3, op.takes_several)) {
          for (int d = -1; d < 3; ++d) compare(mesh, op, shape, dims, {d < 0 ? replicate() : shard(d)}, DType::f32);
        }
      }
    }
  });
}

// The dims that are summed over stand apart, and some ranks have no rows.
TEST_P(EmptyDims, OfFourDimsReducedOverTwoThatStandApart) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    for (const OpOverDims& op : ops_over_dims()) {
      if (!op.takes_several) continue;
      for (const Extents& shape :
           {Extents{0, 2, 3, 4}, Extents{1, 2, 3, 4}, Extents{2, 0, 3, 4}, Extents{3, 2, 1, 4}, Extents{2, 3, 2, 0}}) {
        for (const Dims& dims : {Dims{1, 3}, Dims{0, 2}, Dims{0, 3}, Dims{0, 1, 3}}) {
          for (int d = -1; d < 4; ++d) compare(mesh, op, shape, dims, {d < 0 ? replicate() : shard(d)}, DType::bf16);
        }
      }
    }
  });
}

// Cuts of cuts: of 7 elements over 2 x 3 ranks the third has none and the last has one.
TEST(EmptyDimsOf, NestedCuts) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 3}, std::vector<int64_t>{3, 2},
                                            std::vector<int64_t>{2, 2}, std::vector<int64_t>{1, 3}}) {
    on_mesh(shape, [](const Mesh& mesh) {
      for (const OpOverDims& op : ops_over_dims()) {
        if (op.name.ends_with("keepdim")) continue;
        for (const int64_t size : {0, 1, 3, 7}) {
          for (const Dims& dims : sets_of_dims(2, op.takes_several)) {
            for (const Placements& p :
                 {Placements{shard(0), shard(0)}, Placements{shard(0), shard(1)}, Placements{replicate(), shard(0)}})
              compare(mesh, op, {size, 2}, dims, p, DType::f32);
          }
        }
      }
    });
  }
}

TEST(EmptyDimsOf, OrdersAndBothCuts) {
  on_mesh({2, 3}, [](const Mesh& mesh) {
    for (const Cut cut : {Cut::halving, Cut::chunk}) {
      for (const std::vector<int>& order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
        for (const int64_t size : {3, 5, 7, 8, 9}) {
          const Tensor whole = sample({size, 2});
          const Tensor t = distribute_tensor(whole, mesh, {shard(0), shard(0)},
                                             {.layout = {.order = order, .cut = cut}, .src_data_rank = -1});
          for (const Dims& dims : {Dims{0}, Dims{0, 1}}) {
            require_none(difference(full_tensor(amax(t, {.dims = dims})), amax(whole, {.dims = dims})),
                         "amax of " + spec_of(t).to_string());
            require_none(difference(full_tensor(amin(t, {.dims = dims})), amin(whole, {.dims = dims})),
                         "amin of " + spec_of(t).to_string());
            require_none(difference(full_tensor(sum(t, {.dims = dims})), sum(whole, {.dims = dims})),
                         "sum of " + spec_of(t).to_string());
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace tutti::dist

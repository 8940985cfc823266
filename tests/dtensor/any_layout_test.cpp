// Ops on layouts that nobody would choose: strided parts, dims that two or three mesh dims shard in any order, both
// cuts in one call, terms beside shards, other strides on other ranks.
#include <cmath>
#include <random>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/statistics.h"
#include "tutti/runtime/numerics.h"

namespace tutti::dist {
namespace {

struct NamedOp {
  const char* name;
  std::function<Tensor(const Tensor& x, const Tensor& y)> run;  // both [8, 6]
};

const std::vector<NamedOp>& ops() {
  static const std::vector<NamedOp> all = {
      {"softmax", [](const Tensor& x, const Tensor&) { return softmax(x, 1); }},
      {"softmax of dim 0", [](const Tensor& x, const Tensor&) { return softmax(x, 0); }},
      {"sum", [](const Tensor& x, const Tensor&) { return sum(x); }},
      {"sum of dim 0", [](const Tensor& x, const Tensor&) { return sum(x, {.dims = {0}}); }},
      {"sum of dim 1", [](const Tensor& x, const Tensor&) { return sum(x, {.dims = {1}}); }},
      {"mean of dim 0", [](const Tensor& x, const Tensor&) { return mean(x, {.dims = {0}}); }},
      {"amax of dim 0", [](const Tensor& x, const Tensor&) { return amax(x, {.dims = {0}}); }},
      {"amin", [](const Tensor& x, const Tensor&) { return amin(x); }},
      {"transpose", [](const Tensor& x, const Tensor&) { return transpose(x, 0, 1); }},
      {"slice", [](const Tensor& x, const Tensor&) { return slice(x, 0, 1, 7, 2); }},
      {"select", [](const Tensor& x, const Tensor&) { return select(x, 0, 5); }},
      {"cat of dim 0", [](const Tensor& x, const Tensor& y) { return cat(std::vector<Tensor>{x, y}, 0); }},
      {"cat of dim 1", [](const Tensor& x, const Tensor& y) { return cat(std::vector<Tensor>{x, y}, 1); }},
      {"add", [](const Tensor& x, const Tensor& y) { return add(x, y); }},
      {"mul by a row", [](const Tensor& x, const Tensor& y) { return mul(x, select(y, 0, 3)); }},
      {"matmul", [](const Tensor& x, const Tensor& y) { return matmul(x, transpose(y, 0, 1)); }},
      {"matmul of dim 0", [](const Tensor& x, const Tensor& y) { return matmul(transpose(x, 0, 1), y); }},
      {"merge", [](const Tensor& x, const Tensor&) { return reshape(x, {48}); }},
      {"merge of the transposed", [](const Tensor& x, const Tensor&) { return reshape(transpose(x, 0, 1), {48}); }},
      {"split", [](const Tensor& x, const Tensor&) { return reshape(x, {2, 4, 3, 2}); }},
      {"regroup", [](const Tensor& x, const Tensor&) { return reshape(x, {4, 12}); }},
      {"regroup outwards", [](const Tensor& x, const Tensor&) { return reshape(x, {16, 3}); }},
      {"cumsum", [](const Tensor& x, const Tensor&) { return cumsum(x, 0); }},
      {"silu and sum", [](const Tensor& x, const Tensor& y) { return sum(mul(silu(x), y), {.dims = {0}}); }},
  };
  return all;
}

struct AnyLayout {
  Placements placements;
  LayoutOptions options;
};

AnyLayout any_layout(std::mt19937& random, const std::vector<int64_t>& mesh, const Extents& sizes,
                     bool may_be_strided) {
  AnyLayout layout;
  std::vector<int> order;
  for (size_t axis = 0; axis < mesh.size(); ++axis) {
    order.push_back(static_cast<int>(axis));
    const int d = static_cast<int>(random() % 4);
    const bool is_strided = may_be_strided && random() % 3 == 0;
    if (d >= sizes.ndim()) layout.placements.push_back(replicate());
    else layout.placements.push_back(Placement::shard(d, is_strided ? 2 : 1));
  }
  std::shuffle(order.begin(), order.end(), random);
  layout.options = {.order = order, .cut = random() % 2 == 0 ? Cut::halving : Cut::chunk};
  return layout;
}

// The tensor in that layout, if it divides.
Tensor in_layout(const Tensor& whole, const Mesh& mesh, const AnyLayout& layout) {
  try {
    return distribute_tensor(whole, mesh, layout.placements, {.layout = layout.options, .src_data_rank = -1});
  } catch (const UsageError&) {
    return distribute_tensor(whole, mesh, {}, {.src_data_rank = -1});
  }
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (!(a.extents() == b.extents()) || a.dtype() != b.dtype())
    throw std::logic_error(describe(a) + " against " + describe(b));
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  double largest = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double p = load_as_double(static_cast<const char*>(x.raw_data()) + i * itemsize(x.dtype()), x.dtype());
    const double q = load_as_double(static_cast<const char*>(y.raw_data()) + i * itemsize(y.dtype()), y.dtype());
    largest = std::max(largest, std::abs(p - q) / (1 + std::abs(q)));
  }
  return largest;
}

class AnyLayoutOp : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, AnyLayoutOp,
                         ::testing::Values(std::vector<int64_t>{2}, std::vector<int64_t>{3}, std::vector<int64_t>{2, 2},
                                           std::vector<int64_t>{3, 2}, std::vector<int64_t>{2, 2, 2}));

TEST_P(AnyLayoutOp, GivesTheBitsOfOneRankInStrictMode) {
  const codegen::ContractionLeafForTests leaf(2);
  const std::vector<int64_t> shape = GetParam();
  on_mesh(shape, [&](const Mesh& mesh) {
    std::mt19937 random(3);
    for (int round = 0; round < (shape.size() == 3 ? 4 : 20); ++round) {
      const DType dtype = round % 3 == 2 ? DType::bf16 : DType::f32;
      const Tensor x = sample({8, 6}, dtype), y = sample({8, 6}, dtype, 2);
      const AnyLayout lx = any_layout(random, shape, x.extents(), true),
                      ly = any_layout(random, shape, y.extents(), true);
      const Tensor dx = in_layout(x, mesh, lx), dy = in_layout(y, mesh, ly);
      for (const NamedOp& op : ops()) {
        const std::string about =
            fmt::format("{} of {} and {}", op.name, spec_of(dx).to_string(), spec_of(dy).to_string());
        Tensor result;
        try {
          result = op.run(dx, dy);
        } catch (const std::exception& error) {
          throw std::logic_error(about + ": " + error.what());
        }
        require_none(difference(full_tensor(result), op.run(x, y)), about + " gave " + spec_of(result).to_string());
      }
    }
  });
}

TEST_P(AnyLayoutOp, IsCloseToOneRankInFastMode) {
  const std::vector<int64_t> shape = GetParam();
  on_mesh(shape, [&](const Mesh& mesh) {
    const NumericsScope fast(NumericsMode::fast);
    std::mt19937 random(4);
    const std::vector<PartialOp> kinds = {PartialOp::sum, PartialOp::avg, PartialOp::max, PartialOp::min};
    for (int round = 0; round < (shape.size() == 3 ? 4 : 20); ++round) {
      const Tensor x = sample({8, 6}), y = sample({8, 6}, DType::f32, 2);
      const AnyLayout lx = any_layout(random, shape, x.extents(), true),
                      ly = any_layout(random, shape, y.extents(), true);
      Tensor dx = in_layout(x, mesh, lx);
      const Tensor dy = in_layout(y, mesh, ly);
      Tensor value = x;
      if (round % 2 == 1) {
        // Terms of a value along the first mesh dim, of which each is the value times the coordinate.
        Placements p = placements_of(dx);
        p[0] = replicate();
        const Tensor base = redistribute(dx, p);
        p[0] = partial(kinds[random() % kinds.size()]);
        const double factor = static_cast<double>(mesh->coordinate()[0]) - 0.25;
        dx = from_local(mul(to_local(base), factor), mesh, p,
                        {.layout = {.order = spec_of(base).order(), .cut = spec_of(base).cut()}, .sizes = x.extents()});
        value = full_tensor(dx);
      }
      for (const NamedOp& op : ops()) {
        const std::string about =
            fmt::format("{} of {} and {}", op.name, spec_of(dx).to_string(), spec_of(dy).to_string());
        Tensor result;
        try {
          result = op.run(dx, dy);
        } catch (const std::exception& error) {
          throw std::logic_error(about + ": " + error.what());
        }
        const double far = largest_difference(full_tensor(result), op.run(value, y));
        if (!(far < 1e-4))
          throw std::logic_error(fmt::format("{} gave {}, {} off", about, spec_of(result).to_string(), far));
      }
    }
  });
}

TEST_P(AnyLayoutOp, HasTheGradientsOfOneRankInStrictMode) {
  const codegen::ContractionLeafForTests leaf(2);
  const std::vector<int64_t> shape = GetParam();
  on_mesh(shape, [&](const Mesh& mesh) {
    std::mt19937 random(5);
    for (int round = 0; round < (shape.size() == 3 ? 3 : 10); ++round) {
      const DType dtype = round % 3 == 2 ? DType::bf16 : DType::f32;
      const Tensor x = sample({8, 6}, dtype), y = sample({8, 6}, dtype, 2);
      const AnyLayout lx = any_layout(random, shape, x.extents(), true),
                      ly = any_layout(random, shape, y.extents(), true);
      for (const NamedOp& op : ops()) {
        // Two consumers of x, and both operands twice.
        const auto loss = [&](const Tensor& a, const Tensor& b) {
          const Tensor once = op.run(a, b), again = op.run(mul(a, b), a);
          return add(sum(mul(once, again)), sum(mul(a, 0.5)));
        };
        const Tensor px = requires_grad_(clone(x)), py = requires_grad_(clone(y));
        backward(loss(px, py));
        const Tensor dx = requires_grad_(in_layout(x, mesh, lx)), dy = requires_grad_(in_layout(y, mesh, ly));
        const std::string about =
            fmt::format("{} of {} and {}", op.name, spec_of(dx).to_string(), spec_of(dy).to_string());
        try {
          backward(loss(dx, dy), {}, {.retain_graph = true});
        } catch (const std::exception& error) {
          throw std::logic_error(about + ": " + error.what());
        }
        require_none(difference(full_tensor(grad_of(dx)), grad_of(px)), "gradient 0 of " + about);
        if (grad_of(py).defined())
          require_none(difference(full_tensor(grad_of(dy)), grad_of(py)), "gradient 1 of " + about);
      }
    }
  });
}

// Rows of a strided table lie in several ranges on a rank.
TEST(AnyLayout, EmbeddingFindsTheRowsOfAStridedTable) {
  const Tensor table = sample({8, 3}), indices = Tensor::of<int64_t>({0, 7, 3, 2, 5, 1, 6, 4});
  on_mesh({2}, [&](const Mesh& mesh) {
    const Tensor strided = distribute_tensor(table, mesh, {Placement::shard(0, 2)});
    require_none(
        difference(full_tensor(embedding(strided, distribute_tensor(indices, mesh))), embedding(table, indices)),
        "embedding");
  });
}

TEST(AnyLayout, EmbeddingRefusesIndicesOfNoRow) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor table = distribute_tensor(sample({8, 3}), mesh, {shard(0)});
    for (const int64_t wrong :
         {int64_t{8}, int64_t{-1}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
      EXPECT_USAGE_ERROR(to_local(embedding(table, distribute_tensor(Tensor::of<int64_t>({2, wrong}), mesh))),
                         "embedding: index");
    }
  });
}

// The error names the whole: its rows, and where the index stands in all of them.
TEST(AnyLayout, EmbeddingNamesTheRowsAndPlacesOfTheWhole) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1}, std::vector<int64_t>{2}, std::vector<int64_t>{3},
                                            std::vector<int64_t>{5}, std::vector<int64_t>{2, 2}}) {
    on_mesh(shape, [](const Mesh& mesh) {
      Placements rows(static_cast<size_t>(mesh->ndim()), shard(0)), columns(rows.size(), replicate());
      const bool divides_indices = rows.size() > 1;
      if (divides_indices) rows[0] = replicate(), columns[0] = shard(1);
      for (const int64_t count : {3, 8}) {
        const Tensor table = distribute_tensor(sample({count, 3}), mesh, rows, {.src_data_rank = -1});
        for (const int64_t wrong :
             {count, int64_t{-1}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
          const Tensor indices = Tensor::of<int64_t>({2, 1, 0, 2, 0, wrong, 1, wrong}, {2, 4});
          const bool finds =
              !divides_indices || mesh->coordinate()[0] == 0;  // the first is at [1, 1], the second at [1, 3]
          const std::string wanted =
              fmt::format("embedding: index {} at position [1, {}] is out of range", wrong, finds ? 1 : 3);
          const std::string said = message_of([&] {
            static_cast<void>(
                to_local(embedding(table, distribute_tensor(indices, mesh, columns, {.src_data_rank = -1}))));
          });
          EXPECT_NE(said.find(wanted), std::string::npos) << said;
          EXPECT_NE(said.find(fmt::format("legal: 0 to {}", count - 1)), std::string::npos) << said;
        }
      }
    });
  }
}

TEST(AnyLayout, PartsWithOtherStridesOnOtherRanksMakeTheSameCalls) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({3, 4, 2});
    const Tensor mine = clone(to_local(distribute_tensor(whole, mesh, {shard(0)})));
    // Rank 0 holds two rows, transposed in memory; rank 1 one, dense or expanded.
    const Tensor local = mesh->rank() == 0 ? transpose(clone(transpose(mine, 0, 2)), 0, 2) : mine;
    const Tensor t = from_local(local, mesh, {shard(0)}, {.sizes = whole.extents()});
    for (const Shape& sizes : {Shape{12, 2}, Shape{3, 8}, Shape{24}, Shape{3, 2, 2, 2}}) {
      require_none(difference(full_tensor(reshape(t, sizes)), reshape(whole, sizes)), "reshape");
    }
    require_none(
        difference(full_tensor(reshape(transpose(t, 0, 1), {12, 2})), reshape(transpose(whole, 0, 1), {12, 2})),
        "reshape of transposed");
    require_none(difference(full_tensor(sum(t, {.dims = {1}})), sum(whole, {.dims = {1}})), "sum");
  });
}

// A column of one element looks dense on one rank and transposed on another.
TEST(AnyLayout, StridesOfTheWholeAreTheSameOnAllRanks) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = distribute_tensor(sample({3, 4}), mesh, {shard(0)});
    for (const Tensor& view :
         {transpose(t, 0, 1), reshape(t, {12}), slice(t, 1, 1, 3, 1), transpose(reshape(t, {3, 2, 2}), 0, 2)}) {
      const std::string own = fmt::format("{}", view.strides());
      for (const std::string& other : mesh->group()->all_gather_bytes(own)) EXPECT_EQ(other, own);
    }
    EXPECT_EQ(transpose(t, 0, 1).strides(), (Extents{1, 4}));
  });
}

TEST(AnyLayout, AValueWithAGradientIsNotWrittenIntoAView) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = distribute_tensor(sample({3, 4}), mesh, {shard(0)});
    const Tensor x = requires_grad_(distribute_tensor(sample({3}), mesh, {shard(0)}));
    EXPECT_USAGE_ERROR(add_(select(t, 1, 0), x), "whose memory other tensors share");
  });
}

TEST(AnyLayout, ExpandedPartsAreReadAndMovedAsTheyLook) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor row = sample({1, 6});
    const Tensor local = row.view_as({4, 6}, {0, 1}, 0);
    const Tensor t = from_local(local, mesh, {shard(0), replicate()});
    const Tensor whole = clone(row.view_as({8, 6}, {0, 1}, 0));
    require_none(difference(full_tensor(t), whole), "full_tensor");
    require_none(difference(full_tensor(redistribute(t, {shard(1), shard(0)})), whole), "redistribute");
    require_none(difference(full_tensor(reshape(t, {48})), reshape(whole, {48})), "reshape");
    require_none(difference(full_tensor(sum(t, {.dims = {0}})), sum(whole, {.dims = {0}})), "sum");
    require_none(difference(full_tensor(softmax(transpose(t, 0, 1), 0)), softmax(transpose(whole, 0, 1), 0)),
                 "softmax");
  });
}

}  // namespace
}  // namespace tutti::dist

#include "tutti/core/shape.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tutti/core/sym_graph.h"

namespace tutti {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Extents, PrintsAsAList) {
  EXPECT_EQ(to_string(Extents{}), "[]");
  EXPECT_EQ(to_string(Extents{2, 0, 3}), "[2, 0, 3]");
}

TEST(Extents, ANinthDimIsRefused) {
  Extents e(kMaxDims, 1);
  EXPECT_THROW(e.push_back(1), UsageError);
}

TEST(Extents, InsertAndEraseShiftTheRest) {
  Extents e{1, 2, 4};
  e.insert(2, 3);
  EXPECT_EQ(e, (Extents{1, 2, 3, 4}));
  e.erase(0);
  EXPECT_EQ(e, (Extents{2, 3, 4}));
}

TEST(NumelOf, IsOneForNoDimsAndZeroForAnEmptyOne) {
  EXPECT_EQ(numel_of(Extents{}), 1);
  EXPECT_EQ(numel_of(Extents{5, 0, 3}), 0);
}

TEST(NumelOf, ChecksForOverflow) {
  EXPECT_THROW(numel_of(Extents{int64_t{1} << 40, int64_t{1} << 40}), SymIntOverflow);
}

TEST(ContiguousStrides, CountElementsOfTheDimsToTheRight) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Extents{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Extents{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Extents{});
}

TEST(NormalizeDim, CountsFromTheEndAndNamesTheLegalRange) {
  EXPECT_EQ(normalize_dim(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_dim(0, 3, "sum"), 0);
  EXPECT_EQ(error_of([] { normalize_dim(3, 3, "sum"); }),
            "sum: dim 3 is out of range for a tensor of 3 dimensions; legal: -3 to 2");
  EXPECT_THROW(normalize_dim(-4, 3, "sum"), UsageError);
  EXPECT_EQ(error_of([] { normalize_dim(-1, 0, "sum"); }),
            "sum: dim -1 of a tensor without dimensions, which is a single number; reshape it to [1] to have one");
}

TEST(NormalizeDims, SortsAndTakesNoneAsAll) {
  EXPECT_EQ(normalize_dims({-1, 0}, 3, "sum"), (Dims{0, 2}));
  EXPECT_EQ(normalize_dims({}, 3, "sum"), (Dims{0, 1, 2}));
  EXPECT_EQ(error_of([] { normalize_dims({1, -2}, 3, "sum"); }), "sum: dim -2 is named twice");
}

TEST(BroadcastShapes, FollowsNumpy) {
  EXPECT_EQ(broadcast_shapes({2, 1, 4}, {3, 1}, "add"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes({}, {3}, "add"), (Shape{3}));
  EXPECT_EQ(broadcast_shapes({1}, {0}, "add"), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({5, 1}, {1, 6}, "add"), (Shape{5, 6}));
}

TEST(BroadcastShapes, NamesBothShapesAndTheDim) {
  EXPECT_EQ(error_of([] { broadcast_shapes({2, 3}, {2, 4}, "add"); }),
            "add: shapes [2, 3] and [2, 4] do not broadcast: size 3 against 4 at dim 1 from the right");
}

TEST(BroadcastShapes, TheSameSymbolBroadcastsWithoutAGuard) {
  SymGraph graph;
  SymGraph::Scope scope(graph);
  const SymInt n = graph.symbol("n", 5);
  const Shape result = broadcast_shapes({n, 3}, {n, 1}, "add");
  EXPECT_EQ(result[0].raw(), n.raw());
  EXPECT_TRUE(graph.guards().empty());
}

TEST(BroadcastShapes, DifferentSymbolsGuardTheirEquality) {
  SymGraph graph;
  SymGraph::Scope scope(graph);
  const SymInt n = graph.symbol("n", 5), m = graph.symbol("m", 5), k = graph.symbol("k", 6);
  EXPECT_NO_THROW(broadcast_shapes({n}, {m}, "add"));
  EXPECT_FALSE(graph.guards().empty());
  EXPECT_THROW(broadcast_shapes({n}, {k}, "add"), UsageError);
}

TEST(Concrete, ASymbolIsGuardedToBeWhatItIs) {
  SymGraph graph;
  SymGraph::Scope scope(graph);
  const Shape shape{graph.symbol("batch", 2), 3};
  EXPECT_EQ(concrete(shape), (Extents{2, 3}));
  ASSERT_EQ(graph.guards().size(), 1u);
  EXPECT_EQ(graph.to_string(graph.guards()[0].node), "batch");
  EXPECT_EQ(concrete(to_shape({2, 3})), (Extents{2, 3}));
}

}  // namespace
}  // namespace tutti

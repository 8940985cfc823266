// Explanations and pictures of layouts.
#include <limits>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/dist/explain.h"
#include "tutti/dist/visualize.h"

namespace tutti::dist {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ExplainSharding, SaysWhatIsChosenMovedAndRejected) {
  const std::string text =
      explain_sharding({.op = "matmul", .mesh = {2, 2}, .inputs = {"[4096,1024]@[S(0),R]", "[1024,4096]@[R,S(1)]"}});
  EXPECT_TRUE(contains(
      text, "chosen: shard m, shard n (exact), [S(0), R] [R, S(1)] -> [S(0), S(1)]\n  0 collectives, 0 bytes a rank"))
      << text;
  EXPECT_TRUE(contains(text, "also legal: shard m, shard k (tree)")) << text;
  const std::string row =
      explain_sharding({.op = "matmul", .mesh = {2}, .inputs = {"bf16[8,1024]@[S(1)]", "bf16[1024,8]@[S(0)]"}});
  EXPECT_TRUE(contains(row, "chosen: shard k (tree), [S(1)] [S(0)] -> [P(sum)]")) << row;
  const std::string refused =
      explain_sharding({.op = "matmul", .mesh = {3}, .inputs = {"[8,1024]@[S(1)]", "[1024,8]@[S(0)]"}});
  EXPECT_TRUE(contains(refused,
                       "rejected: shard k: the sum over 1024 elements is a tree with leaves of 128: it can be cut over "
                       "powers of two up to 8, not over 3 ranks"))
      << refused;
  EXPECT_TRUE(contains(refused, "exchange over mesh dim 0")) << refused;
  const std::string softmax = explain_sharding({.op = "softmax", .mesh = {2}, .inputs = {"[8,16]@[S(1)]"}});
  EXPECT_TRUE(contains(softmax, "input 0: f32[8, 16]@[S(1)] -> f32[8, 16]@[S(0)]: 128 bytes a rank")) << softmax;
}

TEST(ExplainSharding, RefusesQuestionsThatAreNone) {
  EXPECT_USAGE_ERROR(explain_sharding({.op = "matmull", .mesh = {2}, .inputs = {"[8]@[R]"}}), "did you mean 'matmul'");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "matmul", .mesh = {2}, .inputs = {"[8]@[R]"}}),
                     "matmul takes 2 tensors, and 1 are given");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"[8]"}}), "there are no placements");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"8@[R]"}}), "there are no sizes");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"[x]@[R]"}}), "a size is no number");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"f33[8]@[R]"}}), "f33");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"[8]@[R,R]"}}),
                     "2 placements [R, R] for the 1 dims of the mesh");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"[8]@[S(1)]"}}), "does not have");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {}, .inputs = {"[8]@[]"}}), "the mesh has no dims");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"[9223372036854775807,4]@[R]"}}), "");
}

TEST(ExplainSharding, LooksAtMeshesOfManyDimsInTurn) {
  const std::vector<int64_t> mesh(12, 2);
  std::string rows = "[S(0)", replicated = "[R";
  for (int axis = 1; axis < 12; ++axis) rows += ",R", replicated += ",R";
  const std::string text = explain_sharding(
      {.op = "matmul", .mesh = mesh, .inputs = {"[4096,64]@" + rows + "]", "[64,4096]@" + replicated + "]"}});
  EXPECT_TRUE(contains(text, "chosen: shard m, ")) << text.substr(0, 2000);
  EXPECT_TRUE(contains(text, "0 collectives, 0 bytes a rank"));
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = std::vector<int64_t>(20, 2), .inputs = {"[8]@[R]"}}),
                     "the mesh has more than 4096 ranks");
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {int64_t{1} << 62, 8}, .inputs = {"[8]@[R,R]"}}),
                     "the mesh has more than 4096 ranks");
}

TEST(IndexSet, CutsTheLargestSizes) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t ranks : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{7}, most}) {
    for (const Cut cut : {Cut::halving, Cut::chunk}) {
      const Range first = cut_range(most, 0, ranks, cut), last = cut_range(most, ranks - 1, ranks, cut);
      EXPECT_EQ(first.begin, 0);
      EXPECT_EQ(last.end, most);
      EXPECT_LE(first.end, most);
      EXPECT_GE(last.size(), 0);
    }
  }
  EXPECT_EQ(cut_range(0, 2, 3, Cut::chunk).size(), 0);
  EXPECT_EQ(cut_range(5, 3, 4, Cut::chunk), (Range{5, 5}));
}

TEST(ExplainSharding, RefusesATransportWithoutPrices) {
  EXPECT_USAGE_ERROR(explain_sharding({.op = "exp", .mesh = {2}, .inputs = {"[8]@[R]"}, .transport = "glo"}),
                     "unknown transport 'glo'; did you mean 'gloo'");
}

TEST(Visualize, DrawsRowsColumnsReplicasAndEmptyParts) {
  const DTensorSpec& both =
      DTensorSpec::of({.mesh_shape = {2, 2}, .placements = {shard(0), shard(1)}, .sizes = {5, 4}});
  EXPECT_EQ(visualize(both, {0, 1, 2, 3}),
            "f32[5, 4]@[S(0), S(1)]\n"
            "rows \\ columns | 0-1 | 2-3\n"
            "0-2            | 0   | 1\n"
            "3-4            | 2   | 3\n");
  const DTensorSpec& few =
      DTensorSpec::of({.mesh_shape = {4}, .placements = {shard(0)}, .sizes = {2}, .cut = Cut::chunk});
  EXPECT_EQ(visualize(few, {0, 1, 2, 3}),
            "f32[2]@[S(0)] chunk\n      | 0 | 1\nranks | 0 | 1\nno elements: ranks 2 3\n");
  const DTensorSpec& terms = DTensorSpec::of({.mesh_shape = {2}, .placements = {partial()}, .sizes = {3}});
  EXPECT_TRUE(contains(visualize(terms, {4, 7}), "ranks | 4 7\nmesh dim 0: terms, to be combined by sum"));
  EXPECT_TRUE(contains(visualize_svg(both, {0, 1, 2, 3}), "</svg>"));
  EXPECT_USAGE_ERROR(
      visualize(DTensorSpec::of({.mesh_shape = {2}, .placements = {shard(0)}, .sizes = {3, 3, 3}}), {0, 1}),
      "has 3 dims, and a picture two");
}

}  // namespace
}  // namespace tutti::dist

#include "tutti/core/sharding_rule.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"

namespace tutti {
namespace {

std::vector<std::string> spell(const std::vector<ShardingRow>& rows) {
  std::vector<std::string> result;
  for (const ShardingRow& row : rows) {
    std::string text = row.name + ":";
    for (const Placement& p : row.inputs) text += " " + to_string(p);
    text += " ->";
    for (const Placement& p : row.outputs) text += " " + to_string(p);
    if (row.exact) text += " exact";
    if (row.even_factor) text += std::string(" even ") + row.even_factor;
    if (row.masked_factor) text += std::string(" masked ") + row.masked_factor;
    result.push_back(text);
  }
  return result;
}

using Lines = std::vector<std::string>;

std::string message_of(std::string_view text) {
  try {
    ShardingRule::parse(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ShardingRule, MatmulHasARowPerFactorAndBilinearOnes) {
  const Extents in[] = {{4, 6}, {6, 5}}, out[] = {{4, 5}};
  const auto rows = ShardingRule::parse("A[mk] B[kn] -> C[mn] | sum{k} | bilin").rows(in, out);
  EXPECT_EQ(spell(rows), (Lines{"replicate: R R -> R exact", "shard m: S(0) R -> S(0) exact",
                                "shard k: S(1) S(0) -> P(sum)", "shard n: R S(1) -> S(1) exact",
                                "bilin sum of A: P(sum) R -> P(sum)", "bilin avg of A: P(avg) R -> P(avg)",
                                "bilin sum of B: R P(sum) -> P(sum)", "bilin avg of B: R P(avg) -> P(avg)"}));
}

TEST(ShardingRule, AddendsFollowTheOutput) {
  const Extents in[] = {{5}, {4, 6}, {6, 5}}, out[] = {{4, 5}};
  const auto rows = ShardingRule::parse("+D[n] A[mk] B[kn] -> C[mn] | sum{k} |").rows(in, out);
  EXPECT_EQ(spell(rows), (Lines{"replicate: R R R -> R exact", "shard n: S(0) R S(1) -> S(1) exact",
                                "shard m: S(0) S(0) R -> S(0) exact", "shard k: P(sum) S(1) S(0) -> P(sum)"}));
}

TEST(ShardingRule, MergedDimsAreShardedInPieces) {
  const Extents in[] = {{3, 4, 5}}, out[] = {{12, 5}};
  const auto rows = ShardingRule::parse("x[abc] -> y[(ab)c] | even{a} |").rows(in, out);
  EXPECT_EQ(spell(rows), (Lines{"replicate: R -> R exact", "shard a: S(0) -> S(0) exact even a",
                                "shard b: S(1) -> S(0, 3 pieces) exact", "shard c: S(2) -> S(1) exact"}));
}

TEST(ShardingRule, FactorsOfAMergedInputAreSolvedFromTheOutputs) {
  const Extents in[] = {{24}}, out[] = {{4, 6}};
  const auto sizes = ShardingRule::parse("x[(ab)] -> y[ab] | even{a} | id").factor_sizes(in, out);
  EXPECT_EQ(sizes[factor_index('a')], 4);
  EXPECT_EQ(sizes[factor_index('b')], 6);
}

TEST(ShardingRule, OpaqueTensorsAreNeverPartial) {
  const Extents in[] = {{4}, {4}}, out[] = {{4}};
  const auto rows = ShardingRule::parse("#m[a] x[a] -> y[a] | | id+").rows(in, out);
  ASSERT_EQ(rows.size(), 6u);
  for (size_t i = 2; i < rows.size(); ++i) {
    EXPECT_TRUE(rows[i].inputs[0].is_replicate());
    EXPECT_TRUE(rows[i].inputs[1].is_partial());
    EXPECT_TRUE(rows[i].exact);
  }
}

TEST(ShardingRule, SelectionsAreExactAndSumsOnlyWhenListed) {
  const Extents in[] = {{4}}, out[] = {Extents{}};
  EXPECT_TRUE(ShardingRule::parse("x[a] -> y[] | max{a} |").rows(in, out)[1].exact);
  EXPECT_FALSE(ShardingRule::parse("x[a] -> y[] | sum{a} |").rows(in, out)[1].exact);
  EXPECT_TRUE(ShardingRule::parse("x[a] -> y[] | sum{a} | | sum{a}").rows(in, out)[1].exact);
}

TEST(ShardingRule, AnAverageNeedsEvenParts) {
  const Extents in[] = {{4}}, out[] = {Extents{}};
  const auto row = ShardingRule::parse("x[a] -> y[] | avg!{a} |").rows(in, out)[1];
  EXPECT_EQ(row.even_factor, 'a');
  EXPECT_EQ(row.outputs[0], Placement::partial(PartialOp::avg));
}

// Two sums that are one tree: the factors have sizes of their own, and are cut by one row.
TEST(ShardingRule, FactorsThatAreCutTogetherShareARow) {
  const Extents in[] = {{2, 8}, {2, 4}}, out[] = {{2}};
  const auto rows = ShardingRule::parse("x[ak] y[ao] -> z[a] | tree:2{k+o} |").rows(in, out);
  EXPECT_EQ(spell(rows),
            (Lines{"replicate: R R -> R exact", "shard a: S(0) S(0) -> S(0) exact", "shard k: S(1) S(1) -> P(sum)"}));
  EXPECT_EQ(rows[2].tree_factor, 'k');
  EXPECT_EQ(rows[2].tree_with, "o");
  EXPECT_EQ(message_of("x[ak] y[ao] -> z[a] | sum{k+} |"),
            "sharding rule: expected a factor letter at position 28 of 'x[ak] y[ao] -> z[a] | sum{k+} |'");
  EXPECT_EQ(message_of("x[ak] -> z[a] | sum{k+o} |"),
            "sharding rule 'x[ak] -> z[a] | sum{k+o} |': factor o has a class but is in no input");
}

TEST(ShardingRule, OrderReversingOpsSwapTheExtremes) {
  const Extents in[] = {{4}}, out[] = {{4}};
  EXPECT_EQ(spell(ShardingRule::parse("x[A] -> y[A] | | dn").rows(in, out)),
            (Lines{"replicate: R -> R exact", "dn max: P(max) -> P(min)", "dn min: P(min) -> P(max)"}));
}

TEST(ShardingRule, AffineAcceptsAPartialBesideAReplicatedOperand) {
  const Extents in[] = {{4}, {4}}, out[] = {{4}};
  EXPECT_EQ(
      spell(ShardingRule::parse("x[A] y[A] -> z[A] | | affine").rows(in, out)),
      (Lines{"replicate: R R -> R exact", "affine sum: P(sum) P(sum) -> P(sum)", "affine avg: P(avg) P(avg) -> P(avg)",
             "affine avg of x: P(avg) R -> P(avg)", "affine avg of y: R P(avg) -> P(avg)",
             "affine max of x: P(max) R -> P(max)", "affine min of x: P(min) R -> P(min)"}));
}

TEST(ShardingRule, OpsWithoutInputsShardTheirOutput) {
  const Extents out[] = {{4, 3}};
  EXPECT_EQ(spell(ShardingRule::parse("-> y[ab]").rows({}, out)),
            (Lines{"replicate: -> R exact", "shard a: -> S(0) exact", "shard b: -> S(1) exact"}));
}

TEST(ShardingRule, SyntaxErrorsNameThePosition) {
  EXPECT_EQ(message_of("x[ab -> y[ab]"),
            "sharding rule: expected a factor letter, '1', '(' or ']' at position 4 of 'x[ab -> y[ab]'");
  EXPECT_EQ(message_of("x[a]"), "sharding rule: expected a tensor or '->' at position 4 of 'x[a]'");
  EXPECT_EQ(message_of("x[a] -> y[a] | sum{A}"),
            "sharding rule: expected a lower-case factor at position 19 of 'x[a] -> y[a] | sum{A}'");
  EXPECT_NE(message_of("x[a] -> y[a] | | linear").find("expected one of lin, id"), std::string::npos);
  EXPECT_NE(message_of("x[(a)] -> y[a]").find("two or more factor letters"), std::string::npos);
}

TEST(ShardingRule, AFactorThatVanishesNeedsAClass) {
  EXPECT_EQ(message_of("x[ab] -> y[b]"),
            "sharding rule 'x[ab] -> y[b]': factor a is not in y[b] and has no class; give it one "
            "(sum{a}) or write it upper-case");
}

TEST(ShardingRule, AFactorStandsOnceInATensor) {
  EXPECT_NE(message_of("x[aa] -> y[a]").find("factor a stands twice in x[aa]"), std::string::npos);
}

TEST(ShardingRule, SizesThatDisagreeAreNamed) {
  const Extents in[] = {{4, 3}}, out[] = {{4, 5}};
  EXPECT_THROW(ShardingRule::parse("x[ab] -> y[ab]").rows(in, out), UsageError);
  const Extents other[] = {{4, 3, 2}};
  EXPECT_THROW(ShardingRule::parse("x[ab] -> y[ab]").rows(other, other), UsageError);
}

}  // namespace
}  // namespace tutti

// Random numbers of a step and shard: functions of module path, ordinal, step and shard, and of nothing that counts
// calls.
#include <gtest/gtest.h>

#include "tutti/ops/dropout.h"
#include "tutti/ops/keys_again.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti {
namespace {

bool same(const RandomKey& a, const RandomKey& b) {
  return a.key == b.key && a.step == b.step && a.virtual_shard == b.virtual_shard;
}

TEST(DrawScope, KeysDependOnModuleOrdinalStepAndShardAlone) {
  seed_all(7);
  const auto draw = [](int64_t step, int64_t shard, const char* module, int skipped) {
    next_random_key();  // draws outside do not matter
    const DrawScope scope(step, shard);
    const ModuleScope in(module);
    for (int i = 0; i < skipped; ++i) next_random_key();
    return next_random_key();
  };
  const RandomKey key = draw(3, 5, "block", 1);
  EXPECT_TRUE(same(key, draw(3, 5, "block", 1)));
  EXPECT_TRUE(same(key, random_key("block", 1, 3, 5))) << "as the contract says";
  EXPECT_FALSE(same(key, draw(3, 5, "block", 0)));
  EXPECT_FALSE(same(key, draw(3, 5, "other", 1)));
  EXPECT_FALSE(same(key, draw(4, 5, "block", 1)));
  EXPECT_FALSE(same(key, draw(3, 6, "block", 1)));
}

TEST(DrawScope, OrdinalsCountInsideAModule) {
  const DrawScope scope(1, 2);
  const auto in = [](const char* module) {
    const ModuleScope inside(module);
    return next_random_key();
  };
  in("a");
  in("a");
  EXPECT_TRUE(same(in("b"), random_key("b", 0, 1, 2)));
  EXPECT_TRUE(same(in("a"), random_key("a", 2, 1, 2)));
  EXPECT_TRUE(same(next_random_key(), random_key("", 0, 1, 2)));
}

TEST(DrawScope, GivesTheRankItsOwnSequenceBack) {
  seed_all(7);
  const RandomKey first = next_random_key();
  seed_all(7);
  {
    const DrawScope scope(0, 0);
    next_random_key();
    const DrawScope inner(1, 0);
    next_random_key();
  }
  EXPECT_TRUE(same(next_random_key(), first));
}

TEST(DrawScope, ReplaysDrawsOfModulesWhoseCodeDoesNotRunAgain) {
  const DrawScope scope(1, 2);
  const ModuleScope in("a");
  EXPECT_TRUE(same(next_random_key("b.c"), random_key("a.b.c", 0, 1, 2)));
  EXPECT_TRUE(same(next_random_key(""), random_key("a", 0, 1, 2)));
}

TEST(DrawScope, GoesBackToAMark) {
  const auto draw = [] {
    const ModuleScope in("a");
    return next_random_key();
  };
  const auto again = [&] {
    draw();
    const std::function<void()> rewind = mark_random_keys();
    const RandomKey first = draw();
    draw();
    rewind();
    return same(first, draw());
  };
  EXPECT_TRUE(again()) << "the sequence of the rank";
  const DrawScope scope(1, 2);
  EXPECT_TRUE(again());
  const KeysAgain keys({{.key = 1}, {.key = 2}, {.key = 3}}, "this test");
  EXPECT_TRUE(again());
}

TEST(DrawScope, TakesNumbersThatFitTheCounter) {
  EXPECT_THROW(DrawScope(-1, 0), UsageError);
  EXPECT_THROW(DrawScope(0, int64_t{1} << 32), UsageError);
}

}  // namespace
}  // namespace tutti

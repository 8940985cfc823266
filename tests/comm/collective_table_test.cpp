// What every row of the table of collectives says of itself is so. A new row is tested here by being there.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/comm/support/sample_calls.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kShare = 5;

class Row : public ::testing::TestWithParam<CollectiveKind> {
 protected:
  const CollectiveDef& def() const { return definition(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Of, Row, ::testing::ValuesIn(all_kinds()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Row, IsFoundByItsNames) {
  EXPECT_EQ(kind_of(def()), GetParam());
  EXPECT_EQ(collective_from_name(def().name), GetParam());
  for (const char* former : def().former_names) {
    if (former == nullptr) continue;
    EXPECT_EQ(collective_from_name(former), GetParam()) << former;
  }
}

TEST_P(Row, IsWhatRecordsSayOfIt) {
  const CollectiveWords& words = words_of(GetParam());
  EXPECT_STREQ(words.name, def().name);
  EXPECT_EQ(words.reduces, def().reduces);
  EXPECT_EQ(words.is_message, def().is_message);
}

TEST_P(Row, IsCarriedOutInOneWay) {
  const int ways = (def().move != nullptr) + (def().reduction != nullptr) + (def().make != nullptr) +
                   (def().each != nullptr) + (def().uneven_of != nullptr);
  const bool needs_none =
      def().is_message || def().made_of[0] != nullptr || GetParam() == CollectiveKind::monitored_barrier;
  EXPECT_EQ(ways, needs_none ? 0 : 1);
  EXPECT_EQ(def().source == nullptr, def().wire == nullptr || def().has_splits);
}

std::string page(const char* name) {
  std::ifstream file(std::string(TUTTI_SOURCE_DIR) + "/docs/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_P(Row, HasAPlaceInTheDocumentation) {
  const std::string name = def().each != nullptr ? def().each->name : def().name;
  EXPECT_NE(page("comm.md").find("`" + name), std::string::npos);
  for (const char* former : def().former_names) {
    if (former == nullptr) continue;
    EXPECT_NE(page("from_pytorch.md").find(fmt::format("`{}", former)), std::string::npos) << former;
  }
}

Tensor concatenated(const std::vector<Tensor>& list) {
  std::vector<float> values;
  for (const Tensor& t : list) {
    if (t.dtype() == DType::f32) values.insert(values.end(), t.data<float>(), t.data<float>() + t.numel());
  }
  return Tensor::of(values);
}

// Element i of this rank's inputs, which tells both; sums of a few are exact.
float value_at(int rank, int64_t i) { return static_cast<float>(100 * rank + i); }

TEST_P(Row, GivesElementsFromWhereItSays) {
  if (def().source == nullptr) return;
  run_ranks(kRanks, [&](ProcessGroup& group) {
    const int root = 1;
    const SampleCall call = sample_call(group, GetParam(), {.count = kShare, .root = root});
    int64_t at = 0;
    for (const auto& side :
         {call.arguments->inputs, def().in_place == InPlace::no ? std::vector<Tensor>() : call.arguments->outputs}) {
      for (const Tensor& t : side) {
        if (t.dtype() != DType::f32) continue;  // splits
        for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = value_at(group.rank(), at++);
      }
    }
    call.make();
    const Tensor result = concatenated(call.arguments->outputs);
    for (int64_t i = 0; i < result.numel(); ++i) {
      const Source from = def().source(i, kShare, {group.rank(), kRanks}, root);
      float expected = 0;
      for (int r = from.first; r < from.last; ++r) expected += value_at(r, from.index);
      TUTTI_CHECK(result.data<float>()[i] == expected, "rank {}: element {} of {} is {}; expected {}", group.rank(), i,
                  def().name, result.data<float>()[i], expected);
    }
  });
}

TEST_P(Row, IsAnsweredByCan) {
  run_ranks(1, [&](ProcessGroup& group) {
    EXPECT_TRUE(group.can({.kind = GetParam()}));
    EXPECT_EQ(static_cast<bool>(group.can({.kind = GetParam(), .dtype = DType::boolean, .reduce = ReduceKind::avg})),
              !def().reduces);
    EXPECT_EQ(static_cast<bool>(group.can({.kind = GetParam(), .uneven = true})), def().evenness != Evenness::equal);
  });
}

}  // namespace
}  // namespace tutti::comm

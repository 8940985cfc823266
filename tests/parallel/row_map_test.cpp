// Where rows stand, by counting them one by one.
#include "tutti/parallel/row_map.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/message_of.h"

namespace tutti::parallel {
namespace {

TEST(RowMap, PlacesEveryRowOnceByExpertSourceAndToken) {
  constexpr int kRanks = 3;
  const std::vector<int64_t> counts{2, 0, 1, 4, 0, 3,  //
                                    0, 0, 0, 0, 0, 0,  //
                                    1, 5, 0, 2, 7, 1};
  const RowMap map(counts, kRanks, 20);
  EXPECT_EQ(map.own_experts(), 2);
  for (int s = 0; s < kRanks; ++s) {
    int64_t row = 0;
    for (int64_t x = 0; x < 6; ++x) {
      EXPECT_EQ(map.at_source(s, x), row) << s << " " << x;
      row += map.count(s, x);
    }
  }
  for (int r = 0; r < kRanks; ++r) {
    int64_t row = 0;
    for (int64_t x = 0; x < 6; ++x) {
      if (map.rank_of(x) != r) continue;
      for (int s = 0; s < kRanks; ++s) {
        EXPECT_EQ(map.at_expert(s, x), row) << s << " " << x;
        row += map.count(s, x);
      }
    }
  }
}

TEST(RowMap, NamesTheRankThatGetsMoreThanItHasRoomFor) {
  const std::vector<int64_t> counts{1, 5, 2, 4};
  EXPECT_EQ(message_of([&] { RowMap(counts, 2, 8); }),
            "dispatch of rows: 9 rows go to rank 1, which has room for 8; give all ranks the same max_tokens");
}

}  // namespace
}  // namespace tutti::parallel

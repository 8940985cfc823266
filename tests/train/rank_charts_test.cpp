#include "tutti/train/report/rank_charts.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::train {
namespace {

constexpr int64_t kMiB = 1 << 20;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(RankCharts, ShowPlannedMemoryBesideMeasured) {
  std::vector<RankMemoryBars> ranks(2);
  ranks[0].planned = {8 * kMiB, 4 * kMiB, 4 * kMiB, 0, 0, 0};
  ranks[0].measured = {7 * kMiB, 4 * kMiB, 5 * kMiB, 0, kMiB, 0};
  ranks[1].planned = ranks[1].measured = {8 * kMiB, 2 * kMiB, 4 * kMiB, 0, 0, 0};
  const std::string svg = render_rank_memory(ranks);
  EXPECT_EQ(count_of(svg, "<rect "), 3U + 4U + 3U + 3U) << "a part for each category that is there";
  EXPECT_NE(svg.find("measured: gradients 5.0 MiB"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">planned 16.0<"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">measured 17.0<"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">rank 1<"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("data</span>"), std::string::npos) << "no rank has any";
  EXPECT_EQ(render_rank_memory({}), "");
}

// A tiny run and a huge one have numbers that tell something.
TEST(RankCharts, HaveUnitsThatFit) {
  const std::pair<int64_t, const char*> sizes[] = {
      {300, "B"}, {kMiB / 2, "KiB"}, {kMiB, "MiB"}, {kMiB << 12, "GiB"}, {kMiB << 21, "TiB"}};
  for (const auto& [nbytes, unit] : sizes) {
    const std::vector<RankMemoryBars> ranks(1, RankMemoryBars{.planned = {nbytes}, .measured = {nbytes / 2}});
    const std::string svg = render_rank_memory(ranks);
    EXPECT_NE(svg.find(std::string("peak of a step in ") + unit), std::string::npos) << svg;
    EXPECT_NE(svg.find(std::string(" ") + unit + "</text>"), std::string::npos) << svg;
    EXPECT_EQ(svg.find(">planned 0.0"), std::string::npos) << svg;
  }
}

TEST(RankCharts, ShowTheFirstRanksOfMany) {
  const std::vector<RankMemoryBars> ranks(40, RankMemoryBars{.planned = {kMiB}, .measured = {kMiB}});
  const std::string svg = render_rank_memory(ranks);
  EXPECT_NE(svg.find("the first 16 of 40 ranks"), std::string::npos);
  EXPECT_EQ(svg.find(">rank 16<"), std::string::npos);
}

TEST(RankCharts, ShowAStepOfEachRankAsATimeline) {
  const StepTimeline timeline{.step = 7,
                              .ranks = 2,
                              .spans = {{0, StepSpanKind::forward_backward, 0, 40},
                                        {0, StepSpanKind::reduce, 40, 55},
                                        {0, StepSpanKind::unshard, 1, 3},
                                        {0, StepSpanKind::wait, 41, 52.5},
                                        {0, StepSpanKind::exchange, 20, 21},
                                        {1, StepSpanKind::forward_backward, 0.5, 50},
                                        {1, StepSpanKind::optimizer, 56, 60}},
                              .dropped = 3};
  const std::string svg = render_timeline(timeline);
  EXPECT_NE(svg.find("Timeline of step 7"), std::string::npos);
  EXPECT_EQ(count_of(svg, "<rect "), 7U);
  EXPECT_NE(svg.find("rank 0: waiting, 11.50 ms from 41.00 ms on"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<tr><th>rank 0</th><td data-name=\"forward and backward\">40.00</td><td data-name=\"reduction of "
                     "gradients\">15.00</td><td data-name=\"optimizer\">0.00</td>"
                     "<td data-name=\"unshard\">2.00</td><td data-name=\"waiting\">11.50</td><td "
                     "data-name=\"exchange\">1.00</td></tr>"),
            std::string::npos)
      << svg;
  EXPECT_NE(svg.find("3 short spans are not shown"), std::string::npos) << svg;
}

}  // namespace
}  // namespace tutti::train

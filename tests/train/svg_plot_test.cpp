#include "tutti/train/report/svg_plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tutti::train {
namespace {

TEST(EscapeHtml, LeavesNothingThatCouldBeMarkup) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
}

TEST(AxisTicks, AreRoundNumbersInsideTheRange) {
  EXPECT_EQ(axis_ticks(0, 10, 6), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(90, 410, 5), (std::vector<double>{100, 200, 300, 400}));
}

TEST(AxisTicks, AreFewForAnyRange) {
  for (const double size : {1e-9, 3e-4, 0.7, 12.0, 9999.0, 1e12}) {
    const auto ticks = axis_ticks(-size, size, 6);
    EXPECT_LE(ticks.size(), 7u) << size;
    EXPECT_GE(ticks.size(), 2u) << size;
  }
  EXPECT_TRUE(axis_ticks(1, 1, 6).empty());
}

TEST(AxisText, IsShort) {
  EXPECT_EQ(axis_text(0), "0");
  EXPECT_EQ(axis_text(0.001), "0.001");
  EXPECT_EQ(axis_text(40000), "40k");
  EXPECT_EQ(axis_text(1234567), "1.23M");
}

TEST(Thinned, KeepsPeaksAndOrder) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 10000; ++i) points.push_back({static_cast<double>(i), i == 5431 ? 100.0 : std::sin(i)});
  const auto kept = thinned(points, 500);
  EXPECT_LE(kept.size(), 500u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](auto a, auto b) { return a.x < b.x; }));
  EXPECT_EQ(std::max_element(kept.begin(), kept.end(), [](auto a, auto b) { return a.y < b.y; })->x, 5431);
}

TEST(Smoothed, KeepsAStraightLine) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 100; ++i) points.push_back({static_cast<double>(i), 3.0 * i});
  for (const PlotPoint& point : smoothed(points, 10)) EXPECT_NEAR(point.y, 3 * point.x, 1e-9);
}

TEST(Smoothed, LeavesOutWhatIsNotFinite) { EXPECT_EQ(smoothed({{1, 3}, {2, std::nan("")}, {3, 3}}, 5).size(), 2u); }

TEST(RenderPlot, SaysWhenThereIsNoData) {
  EXPECT_NE(render_plot({.title = "t", .unit = "", .series = {}}).find("no data"), std::string::npos);
  const double nan = std::nan("");
  EXPECT_NE(render_plot({.title = "t", .unit = "", .series = {{"", "line", {{1, nan}}}}}).find("no data"),
            std::string::npos);
}

TEST(RenderPlot, DrawsASinglePoint) {
  const std::string svg = render_plot({.title = "t", .unit = "", .series = {{"", "marked", {{1, 2}}}}});
  EXPECT_NE(svg.find("<circle"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(RenderPlot, BreaksTheLineWhereAValueIsNotFinite) {
  const std::string svg =
      render_plot({.title = "t", .unit = "", .series = {{"", "line", {{1, 1}, {2, std::nan("")}, {3, 1}, {4, 2}}}}});
  const size_t line = svg.find("class=\"line\"");
  const std::string path = svg.substr(line, svg.find("/>", line) - line);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2);
  EXPECT_EQ(path.find("nan"), std::string::npos);
}

TEST(RenderPlot, ShowsTheReferenceInsideTheFrame) {
  const std::string svg = render_plot({.title = "t",
                                       .unit = "",
                                       .series = {{"", "line", {{1, 1}, {2, 1.5}}}},
                                       .reference = 4.0,
                                       .reference_label = "order <2>"});
  EXPECT_NE(svg.find("class=\"reference\""), std::string::npos);
  EXPECT_NE(svg.find("order &lt;2&gt; 4.000"), std::string::npos);
}

}  // namespace
}  // namespace tutti::train

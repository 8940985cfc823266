// Line plots as inline SVG, for self-contained pages. Colours come from the page's CSS classes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::train {

// Escapes text for HTML, for use in element content and in quoted attributes.
std::string escape_html(std::string_view text);

struct PlotPoint {
  double x = 0;
  double y = 0;  // a point that is not finite breaks the line
};

struct PlotSeries {
  std::string label;
  std::string css_class;  // "line", "second", "faint" or "marked" (dots on a line)
  std::vector<PlotPoint> points;
};

struct Plot {
  std::string title;
  std::string unit;
  std::vector<PlotSeries> series;
  // A dashed horizontal line to compare with.
  std::optional<double> reference = std::nullopt;
  std::string reference_label = {};
};

// Round numbers (1, 2, 5 times a power of ten) inside [low, high], at most `most` of them.
std::vector<double> axis_ticks(double low, double high, int most);
// Short text of a number on an axis: "0.001", "12.5", "40k", "1.2M", "3e-05".
std::string axis_text(double value);

// At most `most` points that preserve every peak: the lowest and highest point of each interval.
std::vector<PlotPoint> thinned(const std::vector<PlotPoint>& points, size_t most);
// Each finite point as the mean of about `window` points around it.
std::vector<PlotPoint> smoothed(const std::vector<PlotPoint>& points, size_t window);

// A <figure>; says "no data" when there is nothing to draw.
std::string render_plot(const Plot& plot);

}  // namespace tutti::train

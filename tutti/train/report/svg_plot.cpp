#include "tutti/train/report/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::train {
namespace {

constexpr double kWidth = 640, kHeight = 260;
constexpr double kLeft = 52, kRight = 14, kTop = 12, kBottom = 30;
constexpr size_t kMostPoints = 600;  // about one per pixel of the drawing

// The data range and its place in the drawing.
struct Frame {
  double x0 = std::numeric_limits<double>::infinity(), x1 = -x0;
  double y0 = x0, y1 = -x0;

  void include(double x, double y) {
    if (!std::isfinite(y)) return;
    x0 = std::min(x0, x), x1 = std::max(x1, x);
    y0 = std::min(y0, y), y1 = std::max(y1, y);
  }
  bool is_empty() const { return x0 > x1; }
  // Air above and below; a flat line gets a range too.
  void widen() {
    if (x0 == x1) x0 -= 0.5, x1 += 0.5;
    const double air = y0 == y1 ? std::max(std::abs(y0) * 0.1, 1e-12) : (y1 - y0) * 0.06;
    const bool touches_zero = y0 >= 0 && y0 - air < 0;
    y0 = touches_zero ? 0 : y0 - air;
    y1 += air;
  }
  double px(double x) const { return kLeft + (x - x0) / (x1 - x0) * (kWidth - kLeft - kRight); }
  double py(double y) const { return kHeight - kBottom - (y - y0) / (y1 - y0) * (kHeight - kTop - kBottom); }
};

std::string path_of(const Frame& frame, const std::vector<PlotPoint>& points) {
  std::string path;
  bool pen_down = false;
  for (const PlotPoint& point : points) {
    if (std::isfinite(point.y)) {
      path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", frame.px(point.x), frame.py(point.y));
    }
    pen_down = std::isfinite(point.y);
  }
  return path;
}

std::string axes(const Frame& frame) {
  std::string svg;
  for (const double y : axis_ticks(frame.y0, frame.y1, 6)) {
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        kLeft, frame.py(y), kWidth - kRight, kLeft - 7, frame.py(y) + 4, axis_text(y));
  }
  for (const double x : axis_ticks(frame.x0, frame.x1, 8)) {
    svg += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", frame.px(x),
                       kHeight - kBottom + 18, axis_text(x));
  }
  return svg +
         fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", kLeft, kHeight - kBottom, kWidth - kRight);
}

std::string draw(const Frame& frame, const PlotSeries& series) {
  const std::vector<PlotPoint> points = thinned(series.points, kMostPoints);
  std::string svg = fmt::format("<path class=\"{}\" d=\"{}\"/>", escape_html(series.css_class), path_of(frame, points));
  if (series.css_class != "marked") return svg;
  for (const PlotPoint& p : points) {
    if (!std::isfinite(p.y)) continue;
    svg += fmt::format(
        "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\"><title>step {}: {:.4f}</title></circle>",
        frame.px(p.x), frame.py(p.y), axis_text(p.x), p.y);
  }
  return svg;
}

std::string caption(const Plot& plot) {
  std::string legend;
  for (const PlotSeries& series : plot.series) {
    if (series.label.empty()) continue;
    legend += fmt::format("<span class=\"key {}\">{}</span>", escape_html(series.css_class), escape_html(series.label));
  }
  if (plot.reference) {
    legend += fmt::format("<span class=\"key reference\">{} {:.3f}</span>", escape_html(plot.reference_label),
                          *plot.reference);
  }
  return fmt::format("<figcaption><b>{}</b>{}<span class=\"legend\">{}</span></figcaption>", escape_html(plot.title),
                     plot.unit.empty() ? "" : fmt::format(" <i>{}</i>", escape_html(plot.unit)), legend);
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> axis_ticks(double low, double high, int most) {
  if (!(high > low)) return {};
  double step = std::pow(10.0, std::floor(std::log10((high - low) / most)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if ((high - low) / step <= most) break;
    step *= factor;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step); i * step <= high; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string axis_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

std::vector<PlotPoint> thinned(const std::vector<PlotPoint>& points, size_t most) {
  if (points.size() <= most) return points;
  const size_t stretches = std::max<size_t>(most / 2, 1);
  std::vector<PlotPoint> kept;
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<ptrdiff_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<ptrdiff_t>(points.size() * (i + 1) / stretches);
    const auto [lowest, highest] =
        std::minmax_element(begin, end, [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
    kept.push_back(*std::min(lowest, highest));
    if (lowest != highest) kept.push_back(*std::max(lowest, highest));
  }
  return kept;
}

std::vector<PlotPoint> smoothed(const std::vector<PlotPoint>& points, size_t window) {
  std::vector<PlotPoint> out;
  std::vector<double> sums{0};  // sums[i]: of the first i values
  for (const PlotPoint& point : points) {
    if (!std::isfinite(point.y)) continue;
    out.push_back(point);
    sums.push_back(sums.back() + point.y);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    // As far to the left as to the right, so that a slope is not shifted; shorter at the ends.
    const size_t reach = std::min({window / 2, i, out.size() - 1 - i});
    out[i].y = (sums[i + reach + 1] - sums[i - reach]) / static_cast<double>(2 * reach + 1);
  }
  return out;
}

std::string render_plot(const Plot& plot) {
  Frame frame;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) frame.include(point.x, point.y);
  }
  if (frame.is_empty()) return fmt::format("<figure>{}<p class=\"empty\">no data</p></figure>", caption(plot));
  if (plot.reference) frame.include(frame.x0, *plot.reference);
  frame.widen();
  std::string svg = axes(frame);
  if (plot.reference && std::isfinite(*plot.reference)) {
    svg += fmt::format("<path class=\"reference\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", kLeft, frame.py(*plot.reference),
                       kWidth - kRight);
  }
  for (const PlotSeries& series : plot.series) svg += draw(frame, series);
  return fmt::format("<figure>{}<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg></figure>",
                     caption(plot), kWidth, kHeight, escape_html(plot.title), svg);
}

}  // namespace tutti::train

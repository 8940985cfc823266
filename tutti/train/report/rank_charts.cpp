#include "tutti/train/report/rank_charts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/train/report/byte_text.h"
#include "tutti/train/report/svg_plot.h"

namespace tutti::train {
namespace {

constexpr double kChartWidth = 1040, kChartLeft = 118, kChartRight = 16, kChartBar = 15, kChartRow = 40, kChartTop = 6,
                 kChartAxis = 24;
constexpr size_t kDrawnRanks = 16;
// A chart whose rows are ranks and whose x axis begins at 0.
class RankRows {
 public:
  RankRows(double most, std::string unit) : most_(std::max(most, 1e-9)), unit_(std::move(unit)) {}

  double x(double value) const { return kChartLeft + value / most_ * (kChartWidth - kChartLeft - kChartRight); }
  void label(const std::string& text) {
    svg_ += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kChartLeft - 8,
                        top() + kChartBar, escape_html(text));
  }
  void next_row() { ++row_; }
  double top() const { return kChartTop + static_cast<double>(row_) * kChartRow; }
  void bar(double begin, double end, double y, double height, const std::string& css_class, const std::string& title) {
    svg_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"><title>{}</title></rect>",
        css_class, x(begin), y, std::max(x(end) - x(begin), 0.4), height, escape_html(title));
  }
  void text(double value, double y, const std::string& text) {
    svg_ += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x(value) + 5, y, escape_html(text));
  }
  std::string finish(const std::string& name) const {
    const double bottom = top() + 2;
    std::string axis;
    for (const double tick : axis_ticks(0, most_, 8)) {
      axis += fmt::format(
          "<path class=\"grid\" d=\"M{:.1f} {}V{:.1f}\"/><text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" "
          "text-anchor=\"middle\">{} {}</text>",
          x(tick), kChartTop, bottom, x(tick), bottom + 15, axis_text(tick), unit_);
    }
    return fmt::format("<svg viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"{}\">{}{}</svg>", kChartWidth,
                       bottom + kChartAxis, name, axis, svg_);
  }

 private:
  const double most_;
  const std::string unit_;
  std::string svg_;
  int64_t row_ = 0;
};

std::string legend_item(const std::string& css_class, std::string_view name) {
  return fmt::format("<span><b class=\"{}\"></b>{}</span>", css_class, escape_html(name));
}

int64_t all_of(const std::array<int64_t, kNumMemoryCategories>& bytes) {
  int64_t sum = 0;
  for (const int64_t b : bytes) sum += b;
  return sum;
}

void stack(RankRows& rows, const std::array<int64_t, kNumMemoryCategories>& bytes, const ByteUnit& unit, double y,
           const std::string& what) {
  double at = 0;
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const int64_t mine = bytes[static_cast<size_t>(c)];
    if (mine == 0) continue;
    const double length = static_cast<double>(mine) / unit.nbytes;
    rows.bar(at, at + length, y, kChartBar, fmt::format("part{}", c),
             fmt::format("{}: {} {}", what, name_of(static_cast<MemoryCategory>(c)), byte_text(mine)));
    at += length;
  }
  rows.text(at, y + kChartBar - 3, fmt::format("{} {}", what, in_unit(all_of(bytes), unit)));
}

}  // namespace

std::string render_rank_memory(std::span<const RankMemoryBars> ranks) {
  if (ranks.empty()) return "";
  const size_t shown = std::min(ranks.size(), kDrawnRanks);
  int64_t most = 0;
  for (const RankMemoryBars& r : ranks.first(shown)) most = std::max({most, all_of(r.planned), all_of(r.measured)});
  const ByteUnit unit = byte_unit(most);
  RankRows rows(1.15 * static_cast<double>(most) / unit.nbytes, unit.name);
  std::string legend;
  for (size_t r = 0; r < shown; ++r) {
    rows.label(fmt::format("rank {}", r));
    stack(rows, ranks[r].planned, unit, rows.top(), "planned");
    stack(rows, ranks[r].measured, unit, rows.top() + kChartBar + 2, "measured");
    rows.next_row();
  }
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const bool is_there = std::ranges::any_of(ranks.first(shown), [&](const RankMemoryBars& r) {
      return r.planned[static_cast<size_t>(c)] + r.measured[static_cast<size_t>(c)] > 0;
    });
    if (is_there) legend += legend_item(fmt::format("part{}", c), name_of(static_cast<MemoryCategory>(c)));
  }
  const std::string more = shown < ranks.size() ? fmt::format("; the first {} of {} ranks", shown, ranks.size()) : "";
  return fmt::format(
      "<h2>Memory of the ranks</h2><figure class=\"ranks\"><figcaption>the highest peak of a step in {}, as planned "
      "before the run and as measured, by category{}</figcaption><div class=\"wide\">{}</div>"
      "<p class=\"scale\">{}</p></figure>",
      unit.name, more, rows.finish("memory of the ranks"), legend);
}

std::string render_timeline(const StepTimeline& timeline) {
  double most = 0;
  for (const StepSpan& s : timeline.spans) most = std::max(most, s.end_ms);
  RankRows rows(most, "ms");
  std::string legend, facts;
  for (int64_t r = 0; r < timeline.ranks; ++r) {
    rows.label(fmt::format("rank {}", r));
    std::array<double, kNumStepSpanKinds> ms{};
    for (const StepSpan& s : timeline.spans) {
      if (s.rank != r) continue;
      const auto kind = static_cast<int>(s.kind);
      ms[static_cast<size_t>(kind)] += s.end_ms - s.begin_ms;
      // What happens inside of something else is drawn over its lower half.
      const bool is_inside = s.kind >= StepSpanKind::unshard;
      rows.bar(s.begin_ms, s.end_ms, rows.top() + (is_inside ? kChartBar : 0), is_inside ? kChartBar : 2 * kChartBar,
               fmt::format("span{}", kind),
               fmt::format("rank {}: {}, {:.2f} ms from {:.2f} ms on", r, name_of(s.kind), s.end_ms - s.begin_ms,
                           s.begin_ms));
    }
    std::string cells;
    // A narrow screen shows each row as a list, where the names stand beside the numbers.
    for (size_t k = 0; k < ms.size(); ++k)
      cells += fmt::format("<td data-name=\"{}\">{:.2f}</td>", name_of(static_cast<StepSpanKind>(k)), ms[k]);
    facts += fmt::format("<tr><th>rank {}</th>{}</tr>", r, cells);
    rows.next_row();
  }
  std::string heads;
  for (int k = 0; k < kNumStepSpanKinds; ++k) {
    legend += legend_item(fmt::format("span{}", k), name_of(static_cast<StepSpanKind>(k)));
    heads += fmt::format("<th>{}</th>", name_of(static_cast<StepSpanKind>(k)));
  }
  const std::string dropped =
      timeline.dropped > 0 ? fmt::format("; {} short spans are not shown", timeline.dropped) : "";
  return fmt::format(
      "<h2>Timeline of step {}</h2><figure class=\"ranks\"><figcaption>what each rank does, in milliseconds; below, "
      "what of it is unshard, waiting for other ranks and "
      "for buffers, and exchange between ranks{}</figcaption><div class=\"wide\">{}</div><p "
      "class=\"scale\">{}</p><table class=\"spans\"><tr><th>ms</th>{}</tr>{}</table></figure>",
      timeline.step, dropped, rows.finish("timeline of a step"), legend, heads, facts);
}

}  // namespace tutti::train

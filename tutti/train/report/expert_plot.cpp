#include "tutti/train/report/expert_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::train {
namespace {

constexpr double kBorders[] = {0.25, 0.5, 0.8, 1.25, 2, 4};
constexpr const char* kNames[] = {"none",     "below 1/4", "1/4 to 1/2", "1/2 to 4/5", "4/5 to 5/4 of the mean",
                                  "5/4 to 2", "2 to 4",    "4 or more"};
constexpr char kCharacters[] = {'_', '.', ':', '-', '=', '+', '#', '@'};
constexpr int kClasses = static_cast<int>(std::size(kNames));
constexpr size_t kMostFrames = 24;
constexpr int kCell = 10;  // units of a cell

double mean_of(const ExpertLoad& load) {
  double all = 0;
  for (const int64_t n : load.tokens) all += static_cast<double>(n);
  return load.tokens.empty() ? 0 : all / static_cast<double>(load.tokens.size());
}

std::vector<int> classes_of(const ExpertLoad& load) {
  std::vector<int> classes;
  for (const int64_t n : load.tokens) classes.push_back(load_class(n, mean_of(load)));
  return classes;
}

// The numbers of layers at the left of a map of so many units and those of experts below it, as large as text of the
// page and no denser than can be read.
struct MapLabels {
  double font, left, bottom;
  std::string svg;
};
MapLabels labels_of(const StepRecord& record, size_t experts) {
  constexpr double kPageWidth = 1040, kPageHeight = 480, kPageFont = 11;
  const size_t layers = record.experts.size();
  const double width = static_cast<double>(experts * kCell), height = static_cast<double>(layers * kCell);
  // Two rows and four columns of text stand around the map.
  const double scale = std::min((kPageWidth - 6 * kPageFont) / width, (kPageHeight - 3 * kPageFont) / height);
  MapLabels labels{
      .font = kPageFont / scale, .left = 5 * kPageFont / scale, .bottom = 1.5 * kPageFont / scale, .svg = ""};
  const auto text = [&](double x, double y, const char* anchor, const std::string& what) {
    labels.svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>", x, y, anchor, what);
  };
  const auto stride = [&](double room) {
    return std::max<size_t>(1, static_cast<size_t>(std::ceil(room * labels.font / kCell)));
  };
  const double gap = 0.4 * labels.font;
  for (size_t row = 0; row < layers; row += stride(1.1))
    text(-gap, (static_cast<double>(row) + 0.5) * kCell + 0.35 * labels.font, "end",
         fmt::format("{}", record.experts[row].layer));
  for (size_t expert = 0; expert < experts; expert += stride(3))
    text((static_cast<double>(expert) + 0.5) * kCell, height + labels.font, "middle", fmt::format("{}", expert));
  text(-gap, -gap, "end", "layer");
  text(-gap, height + labels.font, "end", "expert");
  return labels;
}

// One path per class: a rectangle for each run of experts of that class in a layer.
std::string heat_map(const StepRecord& record) {
  std::string paths[kClasses];
  size_t experts = 1;
  for (size_t row = 0; row < record.experts.size(); ++row) {
    const std::vector<int> classes = classes_of(record.experts[row]);
    experts = std::max(experts, classes.size());
    for (size_t begin = 0, end = 0; begin < classes.size(); begin = end) {
      while (end < classes.size() && classes[end] == classes[begin]) ++end;
      paths[classes[begin]] += fmt::format("M{} {}h{}v{}h-{}z", begin * kCell, row * kCell, (end - begin) * kCell,
                                           kCell - 1, (end - begin) * kCell);
    }
  }
  const MapLabels labels = labels_of(record, experts);
  std::string svg = fmt::format(
      "<svg viewBox=\"{:.3f} {:.3f} {:.3f} {:.3f}\" role=\"img\" aria-label=\"loads of experts at step {}\"><g "
      "class=\"cells\" font-size=\"{:.3f}\">{}</g>",
      -labels.left, -1.5 * labels.font, labels.left + static_cast<double>(experts * kCell),
      1.5 * labels.font + static_cast<double>(record.experts.size() * kCell) + labels.bottom, record.step, labels.font,
      labels.svg);
  for (int c = 0; c < kClasses; ++c) {
    if (!paths[c].empty()) svg += fmt::format("<path class=\"heat{}\" d=\"{}\"/>", c, paths[c]);
  }
  return svg + "</svg>";
}

// Steps with experts, as many as are shown.
std::vector<const StepRecord*> frames_of(std::span<const StepRecord> records) {
  std::vector<const StepRecord*> all, frames;
  for (const StepRecord& r : records) {
    if (!r.experts.empty()) all.push_back(&r);
  }
  const size_t count = std::min(all.size(), kMostFrames);
  for (size_t i = 0; i < count; ++i) frames.push_back(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]);
  return frames;
}

}  // namespace

int load_class(int64_t tokens, double mean) {
  if (tokens == 0 || mean == 0) return 0;
  return static_cast<int>(
             std::upper_bound(std::begin(kBorders), std::end(kBorders), static_cast<double>(tokens) / mean) -
             std::begin(kBorders)) +
         1;
}

std::string render_expert_loads(std::span<const StepRecord> records) {
  const std::vector<const StepRecord*> frames = frames_of(records);
  if (frames.empty()) return "";
  std::string inputs, shown, rules, legend;
  for (size_t i = 0; i < frames.size(); ++i) {
    const StepRecord& r = *frames[i];
    inputs += fmt::format("<input type=\"radio\" name=\"expert-step\" id=\"expert-step-{}\" aria-label=\"step {}\"{}>",
                          i, r.step, i + 1 == frames.size() ? " checked" : "");
    double worst = 0;
    int64_t starved = 0;
    for (const ExpertLoad& load : r.experts) worst = std::max(worst, max_over_mean(load)), starved += starved_in(load);
    shown += fmt::format("<div><p>step {}: at most {:.2f} times the mean, {} without a token</p>{}</div>", r.step,
                         worst, starved, heat_map(r));
    rules += fmt::format("{}#expert-step-{}:checked~.frames>div:nth-child({})", i == 0 ? "" : ",", i, i + 1);
  }
  for (int c = 0; c < kClasses; ++c) legend += fmt::format("<span><b class=\"heat{}\"></b>{}</span>", c, kNames[c]);
  return fmt::format(
      "<h2>Loads of experts</h2><figure class=\"experts\"><style>{}{{display:block}}</style><figcaption>rows: layers, "
      "columns: experts, colour: tokens by the mean of the "
      "layer; the slider chooses a step</figcaption>{}<div class=\"frames\">{}</div><p class=\"scale\">{}</p></figure>",
      rules, inputs, shown, legend);
}

std::string describe_expert_loads(const StepRecord& record) {
  TUTTI_CHECK(!record.experts.empty(),
              "step {} has no loads of experts: the model has none, or another version recorded the step", record.step);
  std::string text = fmt::format(
      "step {}\nlayer  max/mean  entropy  starved      bias from         to  tokens by the mean, expert 0 first\n",
      record.step);
  for (const ExpertLoad& load : record.experts) {
    std::string row;
    for (const int c : classes_of(load)) row += kCharacters[c];
    text += fmt::format("{:5}  {:8.2f}  {:7.3f}  {:7}  {:13.4f}  {:9.4f}  {}\n", load.layer, max_over_mean(load),
                        entropy_of(load), starved_in(load), load.bias_min, load.bias_max, row);
  }
  text += "\n";
  for (int c = 0; c < kClasses; ++c) text += fmt::format("{}{} {}", c == 0 ? "" : ", ", kCharacters[c], kNames[c]);
  return text + "\n";
}

}  // namespace tutti::train

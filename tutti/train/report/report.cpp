#include "tutti/train/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tutti/runtime/atomic_file.h"
#include "tutti/train/config/config_fields.h"
#include "tutti/train/report/byte_text.h"
#include "tutti/train/report/expert_plot.h"
#include "tutti/train/report/record_words.h"
#include "tutti/train/report/report_style.h"
#include "tutti/train/report/status_line.h"
#include "tutti/train/report/svg_plot.h"

namespace tutti::train {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string grouped(int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (ptrdiff_t at = static_cast<ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

template <class Get>
std::vector<PlotPoint> points_of(const std::vector<StepRecord>& records, const Get& get) {
  std::vector<PlotPoint> points;
  for (const StepRecord& record : records) {
    const std::optional<double> y = get(record);
    if (y) points.push_back({static_cast<double>(record.step), *y});
  }
  return points;
}

std::optional<double> last_value(const std::vector<StepRecord>& records, const HeldOutMetric& metric) {
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if ((*record).*metric.value) return (*record).*metric.value;
  }
  return std::nullopt;
}

double median_rate(const std::vector<StepRecord>& records) {
  std::vector<double> rates;
  for (const StepRecord& record : records) rates.push_back(record.items_per_s);
  std::nth_element(rates.begin(), rates.begin() + static_cast<ptrdiff_t>(rates.size() / 2), rates.end());
  return rates[rates.size() / 2];
}

std::string tile(const std::string& name, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><span>{}</span><strong>{}</strong><small>{}</small></div>", escape_html(name),
                     escape_html(value), escape_html(note));
}

std::string tiles(const Report& report) {
  if (report.records.empty()) return "<p class=\"empty\">No step has been trained yet.</p>";
  const StepRecord& last = report.records.back();
  double seconds = 0;
  for (const StepRecord& record : report.records) seconds += record.step_ms / 1000;
  std::string html = tile("Steps", grouped(last.step), fmt::format("of {}", grouped(report.config.training.steps)));
  html +=
      tile("Train loss", fmt::format("{:.4f}", last.loss), fmt::format("{:.4f} at the start", report.records[0].loss));
  for (const HeldOutMetric& metric : held_out_metrics()) {
    const auto value = last_value(report.records, metric);
    if (!value) continue;
    std::string note = fmt::format("{}, {}", metric.unit, metric.data);
    if (report.baseline && metric.compared != nullptr) {
      const double gain = *report.baseline - *value;
      note = fmt::format("{}; {:.{}f} {} {}", metric.unit, std::abs(gain), metric.digits, gain >= 0 ? "below" : "above",
                         metric.compared);
    }
    html += tile(metric.title, fmt::format("{:.{}f}", *value, metric.digits), note);
  }
  std::string items = words_of(last.model).items;
  items[0] = static_cast<char>(items[0] - 'a' + 'A');
  html += tile(items, axis_text(static_cast<double>(last.items_seen)),
               fmt::format("{}/s at the median", axis_text(std::round(median_rate(report.records)))));
  html += tile("Time in steps", duration_text(std::chrono::seconds(std::llround(seconds))),
               "peak memory " + byte_text(last.memory_peak_bytes));
  return fmt::format("<div class=\"tiles\">{}</div>", html);
}

std::string plots(const Report& report) {
  const auto& records = report.records;
  const ModelKind model = kind_of(report.config);
  const ItemWords& words = words_of(model);
  const auto loss = points_of(records, [](const StepRecord& r) { return std::optional<double>(r.loss); });
  const size_t window = std::max<size_t>(5, records.size() / 40);
  std::string html =
      render_plot({.title = "Train loss",
                   .unit = fmt::format("nats per {}", words.item),
                   .series = {{"each step", "faint", loss}, {"smoothed", "line", smoothed(loss, window)}}});
  for (const HeldOutMetric& metric : held_out_metrics()) {
    if (metric.model != model) continue;
    html += render_plot(
        {.title = metric.title,
         .unit = metric.unit,
         .series = {{metric.data, "marked", points_of(records, [&](const StepRecord& r) { return r.*metric.value; })}},
         .reference = metric.baseline != nullptr ? report.baseline : std::nullopt,
         .reference_label = metric.baseline != nullptr ? metric.baseline : ""});
  }
  html += render_plot(
      {.title = "Learning rate",
       .unit = "",
       .series = {{"", "line", points_of(records, [](const StepRecord& r) { return std::optional(r.lr); })}}});
  const auto norm = points_of(records, [](const StepRecord& r) { return std::optional(r.grad_norm); });
  html += render_plot({.title = "Gradient norm",
                       .unit = "before clipping",
                       .series = {{"each step", "faint", norm}, {"smoothed", "line", smoothed(norm, window)}}});
  const auto rate = points_of(records, [](const StepRecord& r) { return std::optional(r.items_per_s); });
  html += render_plot({.title = "Throughput",
                       .unit = fmt::format("{} per second", words.items),
                       .series = {{"each step", "faint", rate}, {"smoothed", "line", smoothed(rate, window)}}});
  const auto step = points_of(records, [](const StepRecord& r) { return std::optional(r.step_ms); });
  const auto comm = points_of(records, [](const StepRecord& r) { return std::optional(r.comm_ms); });
  html += render_plot({.title = "Time per step",
                       .unit = "milliseconds, smoothed",
                       .series = {{"whole step", "line", smoothed(step, window)},
                                  {"exchange between ranks", "second", smoothed(comm, window)}}});
  return fmt::format("<div class=\"plots\">{}</div>", html);
}

std::string table(const Rows& rows) {
  std::string html;
  for (const auto& [name, value] : rows) {
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>", escape_html(name), escape_html(value));
  }
  return fmt::format("<table>{}</table>", html);
}

std::string samples(const std::vector<ReportSample>& samples) {
  std::string html;
  for (auto sample = samples.rbegin(); sample != samples.rend(); ++sample) {
    html += fmt::format("<details{}><summary>step {}</summary><pre>{}</pre></details>",
                        sample == samples.rbegin() ? " open" : "", grouped(sample->step),
                        escape_html(displayable(sample->text)));
  }
  return html.empty() ? html : fmt::format("<h2>What the model writes</h2>{}", html);
}

// A run goes on without a rank that is killed (docs/surviving.md).
Rows lost_ranks(const std::vector<StepRecord>& records) {
  Rows rows;
  for (const StepRecord& record : records) {
    for (const LostRank& lost : record.lost_ranks)
      rows.emplace_back(fmt::format("rank {}, in step {}", lost.rank, lost.step),
                        fmt::format("pid {} on {}; {:.2f} s lost", lost.pid, lost.host, lost.seconds_lost));
  }
  return rows;
}

std::string configuration(const Config& config) {
  std::string html;
  for (const Section& section : config_sections()) {
    Rows rows;
    for (const Field& field : config_fields()) {
      if (field.section == section.name && is_written(field, config))
        rows.emplace_back(field.key, to_toml(value_of(field, config)));
    }
    if (!rows.empty()) html += fmt::format("<section><h3>{}</h3>{}</section>", escape_html(section.name), table(rows));
  }
  return fmt::format("<h2>Configuration</h2><div class=\"config\">{}</div>", html);
}

std::string facts(const std::string& title, const Rows& rows) {
  return rows.empty() ? "" : fmt::format("<section><h2>{}</h2>{}</section>", title, table(rows));
}

std::string model_in(const Config& config) {
  const ModelConfig& m = config.model;
  if (kind_of(config) == ModelKind::clicks) return m.name;
  return m.path.empty() ? fmt::format("{} {}", m.name, m.flavor) : m.path;
}

}  // namespace

std::string render_report(const Report& report) {
  const std::string title = escape_html(report.title);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{} - Tutti</title><style>{}</style></head>\n<body><header><h1>{}</h1>"
      "<p>{}, trained with Tutti</p></header>\n<main>{}\n{}\n{}\n{}{}\n{}\n<div "
      "class=\"facts\">{}{}{}{}</div>\n{}</main></body>"
      "</html>\n",
      title, kReportStyle, title, escape_html(model_in(report.config)), tiles(report), plots(report),
      render_expert_loads(report.records), render_rank_memory(report.facts.ranks),
      report.facts.timeline ? render_timeline(*report.facts.timeline) : "", samples(report.facts.samples),
      facts("Model", report.model), facts("Machine", report.machine),
      facts("Peak memory of a step, rank 0", report.facts.memory),
      facts("Ranks that were lost", lost_ranks(report.records)), configuration(report.config));
}

void write_report(const std::filesystem::path& path, const Report& report) {
  write_file_atomically(path.string(), render_report(report));
}

}  // namespace tutti::train

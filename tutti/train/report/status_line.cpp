#include "tutti/train/report/status_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tutti/train/report/record_words.h"

namespace tutti::train {
namespace {

// The newest step counts a tenth: a validation every hundred steps hardly moves the estimate.
constexpr double kNewestShare = 0.1;

std::string rate_text(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.1f}M", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

}  // namespace

std::string duration_text(std::chrono::seconds duration) {
  const int64_t s = duration.count();
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m {:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h {:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d {:02}h", s / 86400, s % 86400 / 3600);
}

void EtaEstimate::add_step(int64_t step, std::chrono::duration<double> wall) {
  const bool first = step_ == 0;
  step_ = step;
  seconds_per_step_ = first ? wall.count() : seconds_per_step_ + kNewestShare * (wall.count() - seconds_per_step_);
}

std::chrono::seconds EtaEstimate::left() const {
  return std::chrono::seconds(std::llround(seconds_per_step_ * static_cast<double>(total_steps_ - step_)));
}

static bool is_validated(const StepRecord& r) {
  return std::ranges::any_of(held_out_metrics(), [&](const HeldOutMetric& m) { return (r.*m.value).has_value(); });
}

std::string status_text(const StepRecord& r, int64_t total_steps, std::chrono::seconds left) {
  std::string text =
      fmt::format("step {}/{}  loss {:.4f}  grad_norm {:.3g}  lr {:.2e}  {} {}  {:.0f} ms", r.step, total_steps, r.loss,
                  r.grad_norm, r.lr, rate_text(r.items_per_s), words_of(r.model).rate, r.step_ms);
  const char* before = "  val ";
  for (const HeldOutMetric& metric : held_out_metrics()) {
    if (const auto& value = r.*metric.value)
      text += std::exchange(before, ", ") + fmt::format(fmt::runtime(metric.status), *value);
  }
  return text + fmt::format("  ETA {}", duration_text(left));
}

StatusLine::Style StatusLine::style_for(std::FILE* stream) {
  const bool terminal = isatty(fileno(stream)) == 1;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool capable = terminal && term != nullptr && std::string_view(term) != "dumb";
  return {.in_place = capable, .colour = capable && (no_color == nullptr || *no_color == '\0')};
}

StatusLine::~StatusLine() {
  if (is_open_) std::fputc('\n', stream_);
  std::fflush(stream_);
}

void StatusLine::show(const StepRecord& record, int64_t total_steps, std::chrono::seconds left) {
  std::string text = status_text(record, total_steps, left);
  clear();
  if (style_.colour) {
    // The loss is what one looks for.
    const size_t begin = text.find("loss ");
    const size_t end = text.find("  ", begin);
    text.insert(end, "\x1b[0m");
    text.insert(begin, "\x1b[1m");
  }
  // A validated step is worth keeping.
  is_open_ = style_.in_place && !is_validated(record);
  fmt::print(stream_, "{}{}", text, is_open_ ? "" : "\n");
  std::fflush(stream_);
}

void StatusLine::note(const std::string& text) {
  clear();
  fmt::print(stream_, "{}\n", text);
  std::fflush(stream_);
}

void StatusLine::clear() {
  if (is_open_) fmt::print(stream_, "\r\x1b[K");
  is_open_ = false;
}

}  // namespace tutti::train

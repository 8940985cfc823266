#include "tutti/train/step/step_timeline_recorder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string>
#include <tuple>

#include "tutti/core/hash.h"

namespace tutti::train {
namespace {

constexpr int64_t kTimelineStep = 2, kTimelineRanks = 8, kTimelineSpans = 256;
constexpr int64_t kTimelineWords = 4 + 3 * kTimelineSpans;  // clock, begin, spans, dropped; kind, begin and end of each

// The names of spans, in the code that does the work.
const std::map<std::string_view, StepSpanKind>& span_kinds() {
  static const std::map<std::string_view, StepSpanKind> all{
      {"virtual shard", StepSpanKind::forward_backward},   {"reduce gradients", StepSpanKind::reduce},
      {"optimizer step", StepSpanKind::optimizer},         {"FSDP::publish", StepSpanKind::unshard},
      {"FSDP::all_gather", StepSpanKind::unshard},         {"FSDP::wait_for_readers", StepSpanKind::wait},
      {"FSDP::post_backward_rs_wait", StepSpanKind::wait}, {"FSDP::post_backward_final_wait", StepSpanKind::wait}};
  return all;
}

// What this rank tells the others of its trace, and of its exchanges.
std::array<int64_t, kTimelineWords> timeline_words(const Trace& trace, const ExchangeMeter& exchanges) {
  std::vector<std::array<int64_t, 3>> spans;
  int64_t begin = 0;
  for (const TraceHarvest::Thread& thread : trace.threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      const auto kind = span_kinds().find(event.name);
      if (event.category != TraceCategory::annotation) continue;
      if (std::string_view(event.name).starts_with("step ")) begin = event.begin_ns;
      if (kind != span_kinds().end())
        spans.push_back({static_cast<int64_t>(kind->second), event.begin_ns, event.end_ns});
    }
  }
  const auto named = spans;
  for (const auto& [from, to] : exchanges.spans()) {
    const auto has_it = [&, from = from, to = to](const auto& span) {
      return span[0] >= static_cast<int64_t>(StepSpanKind::unshard) && span[1] <= from && to <= span[2];
    };
    if (std::ranges::none_of(named, has_it)) spans.push_back({static_cast<int64_t>(StepSpanKind::exchange), from, to});
  }
  // The longest ones, if there is too little room.
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a[2] - a[1] > b[2] - b[1]; });
  const int64_t kept = std::min(std::ssize(spans), kTimelineSpans);
  std::array<int64_t, kTimelineWords> words{std::bit_cast<int64_t>(hash64(trace.clock)), begin, kept,
                                            std::ssize(spans) - kept + trace.dropped};
  for (int64_t s = 0; s < kept; ++s) std::ranges::copy(spans[static_cast<size_t>(s)], words.begin() + 4 + 3 * s);
  return words;
}

}  // namespace

std::string_view name_of(StepSpanKind kind) {
  static constexpr std::array<std::string_view, kNumStepSpanKinds> kNames{
      "forward and backward", "reduction of gradients", "optimizer", "unshard", "waiting", "exchange"};
  return kNames[static_cast<size_t>(kind)];
}

void StepTimelineRecorder::before_step() noexcept {
  if (!is_on_ || ++steps_begun_ != kTimelineStep || (group_ != nullptr && group_->rank() >= kTimelineRanks)) return;
  profiler_.start(
      {.name = "the step of the report", .filter = TraceFilter::this_rank, .memory = false, .spans_only = true});
  exchanges_.emplace(true);
}

std::optional<StepTimeline> StepTimelineRecorder::after_step(int64_t step) {
  if (!is_on_ || steps_begun_ != kTimelineStep) return std::nullopt;
  ++steps_begun_;
  const int64_t rank = group_ == nullptr ? 0 : group_->rank(),
                ranks = std::min<int64_t>(group_ == nullptr ? 1 : group_->size(), kTimelineRanks);
  std::vector<int64_t> words(static_cast<size_t>(ranks * kTimelineWords), 0);
  if (profiler_.is_running()) {
    profiler_.stop();
    std::ranges::copy(timeline_words(profiler_.trace(), *exchanges_), words.begin() + rank * kTimelineWords);
  }
  exchanges_.reset();
  if (group_ != nullptr && group_->size() > 1)
    group_->all_reduce_values<int64_t>(words);  // each place has one summand that is not 0
  const auto word = [&](int64_t r, int64_t i) { return words[static_cast<size_t>(r * kTimelineWords + i)]; };
  StepTimeline timeline{.step = step, .ranks = ranks};
  bool is_one_clock = true;
  int64_t first = word(0, 1);
  for (int64_t r = 0; r < ranks; ++r) {
    if (word(r, 2) == 0) continue;  // it has no trace
    is_one_clock = is_one_clock && word(r, 0) == word(0, 0);
    first = std::min(first, word(r, 1));
  }
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t zero = is_one_clock ? first : word(r, 1);
    const auto ms = [&](int64_t ns) { return static_cast<double>(ns - zero) / 1e6; };
    for (int64_t s = 0; s < word(r, 2); ++s)
      timeline.spans.push_back(
          {r, static_cast<StepSpanKind>(word(r, 4 + 3 * s)), ms(word(r, 5 + 3 * s)), ms(word(r, 6 + 3 * s))});
    timeline.dropped += word(r, 3);
  }
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(), [](const StepSpan& a, const StepSpan& b) {
    return std::tuple(a.rank, a.kind, a.begin_ms) < std::tuple(b.rank, b.kind, b.begin_ms);
  });
  return timeline;
}

}  // namespace tutti::train

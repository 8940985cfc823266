// One step of a run on every rank: forward and backward, unshards, reductions, waits and exchanges, for the report.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::train {

// An activity of a rank. Later kinds lie inside earlier ones. `exchange` is the time in calls that bring data
// from rank to rank or wait for other ranks (runtime/trace/exchange_meter.h), but for what lies inside unshards and
// waits.
enum class StepSpanKind : uint8_t { forward_backward, reduce, optimizer, unshard, wait, exchange };
inline constexpr int kNumStepSpanKinds = 6;
std::string_view name_of(StepSpanKind kind);

struct StepSpan {
  int64_t rank = 0;
  StepSpanKind kind = StepSpanKind::forward_backward;
  double begin_ms = 0, end_ms = 0;  // since the first rank began the step
};

struct StepTimeline {
  int64_t step = 0, ranks = 0;  // the first ranks of the run
  std::vector<StepSpan> spans;  // by rank, kind and time
  int64_t dropped = 0;          // spans that found no room
};

}  // namespace tutti::train

// [profiler]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> profiler_keys() {
  return {
      {TUTTI_KEY(profiler, bool, enable, false),
       .doc = "write a trace of some steps, one file per rank: trace/rank-R.json in the run folder", .unit = ""},
      {TUTTI_KEY(profiler, int64_t, first_step, 3),
       .doc = "first traced step, counted from the first step after this start", .unit = "steps", .rule = at_least(1)},
      {TUTTI_KEY(profiler, int64_t, steps, 1), .doc = "number of traced steps", .unit = "steps", .rule = at_least(1)},
      {TUTTI_KEY(profiler, bool, memory, true), .doc = "also trace every allocation", .unit = ""},
      {TUTTI_KEY(profiler, int64_t, events_per_thread, 1 << 20),
       .doc = "events kept per thread; further events are dropped and counted", .unit = "events",
       .rule = between(1, 1 << 26)},
  };
}

}  // namespace

TUTTI_SECTION(profiler, ProfilerConfig, 12) = {
    .name = "profiler",
    .doc = "Tracing of training steps.",
    .keys = profiler_keys,
};

}  // namespace tutti::train

#include "bench/trace_bench.h"

#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/trace/profiler.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::bench {
namespace {

constexpr int kSpans = 1000;

void spans() {
  for (int i = 0; i < kSpans; ++i) const TraceSpan span(TraceCategory::annotation, "span");
}

Timing each(Timing time) { return {time.min_us / kSpans, time.median_us / kSpans}; }

}  // namespace

std::vector<TraceCost> run_trace_bench() {
  std::vector<TraceCost> costs;
  const Tensor a = ones({16}), b = ones({16});
  Tensor kept;
  const auto add_costs = [&](const char* session) {
    costs.push_back({"span", session, each(measure(spans))});
    costs.push_back({"add of 16 elements", session, measure([&] { kept = add(a, b); })});
  };
  const ProfilerOptions options{.events_per_thread = 1 << 24, .memory = false};
  add_costs("none");
  Profiler one, two;
  if (!one.start(options).ok()) return costs;
  add_costs("events");
  if (two.start(options).ok()) add_costs("two");
  two.stop();
  one.stop();
  Profiler memory;
  if (memory.start({.events_per_thread = 1 << 24}).ok()) add_costs("events and memory");
  return costs;
}

}  // namespace tutti::bench

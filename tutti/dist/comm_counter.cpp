#include "tutti/dist/comm_counter.h"

#include <utility>

#include <fmt/format.h>

#include "tutti/runtime/trace/trace_context.h"

namespace tutti::dist {

static thread_local CommCounter* innermost = nullptr;

CommCounter::CommCounter()
    : outer_(std::exchange(innermost, this)), kept_places_(std::exchange(TraceContext::current().keeps_places, true)) {}
CommCounter::~CommCounter() {
  innermost = outer_;
  TraceContext::current().keeps_places = kept_places_;
}

void CommCounter::note(const RedistributeStep& step) {
  if (innermost == nullptr || step.kind == StepKind::cut || step.kind == StepKind::fill) return;
  const TracePlace* place = TraceContext::current().place;
  for (CommCounter* counter = innermost; counter != nullptr; counter = counter->outer_) {
    CommCount& count = counter->counts_[place == nullptr ? "" : place->module_path][step.kind];
    ++count.collectives;
    count.bytes += step.bytes;
  }
}

CommCount CommCounter::total() const {
  CommCount sum;
  for (const auto& [module, kinds] : counts_) {
    for (const auto& [kind, count] : kinds) sum.collectives += count.collectives, sum.bytes += count.bytes;
  }
  return sum;
}

CommCount CommCounter::of(StepKind wanted) const {
  CommCount sum;
  for (const auto& [module, kinds] : counts_) {
    const auto it = kinds.find(wanted);
    if (it != kinds.end()) sum.collectives += it->second.collectives, sum.bytes += it->second.bytes;
  }
  return sum;
}

std::string CommCounter::to_string() const {
  std::string text;
  for (const auto& [module, kinds] : counts_) {
    for (const auto& [kind, count] : kinds) {
      text += fmt::format("{}: {} x {}, {:.0f} bytes\n", module.empty() ? "(no module)" : module, count.collectives,
                          name_of(kind), count.bytes);
    }
  }
  return text;
}

}  // namespace tutti::dist

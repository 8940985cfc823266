#include "tutti/graph/family.h"

#include <algorithm>

#include "tutti/graph/specializer.h"
#include "tutti/runtime/numerics.h"

namespace tutti::graph {

struct Family::Recording {
  Program program;
  Outcome outcome;
  std::vector<Captured> captured;
  std::vector<HeldView> held;  // per captured tensor
};

Family::Family(Symbols symbols, const Leaves& arguments)
    : symbols_(std::move(symbols)), guards_(Guards::of(arguments)) {}
Family::~Family() = default;

std::shared_ptr<Family> Family::trace(const Symbols& symbols, const Leaves& arguments, TraceFn fn,
                                      const BuildOptions& options, double* trace_ms, Build& first) {
  const auto begin = std::chrono::steady_clock::now();
  auto made = std::shared_ptr<Family>(new Family(symbols, arguments));
  const auto specializer = with_reach([&](Reach reach) {
    made->recording_ = std::make_unique<Recording>();
    Program& program = made->recording_->program;
    auto traced = std::make_shared<Specializer>(options, arguments, reach, &program);
    traced->trace(fn, made->symbols_.sizes_of(arguments, program.symbols()));
    return traced;
  });
  Program& program = made->recording_->program;
  if (!program.refusal().empty()) throw NotSymbolic(program.refusal());
  program.note_guards("the function");
  made->watch_ = std::make_shared<HeldWatch>(specializer->reads(), made->symbols_);
  specializer->watched_by(made->watch_);
  made->recording_->outcome = specializer->recorded();
  made->recording_->captured = {specializer->captured().begin(), specializer->captured().end()};
  for (const Captured& c : specializer->captured())
    made->recording_->held.push_back(HeldView::of(c.tensor, arguments.tensors));
  *trace_ms = milliseconds_since(begin);
  first = [specializer, made] { return specializer->build(); };
  return made;
}

bool Family::takes(const Leaves& arguments) const {
  return guards_.hold(arguments, [&](int tensor, int dim) { return symbols_.index_of(tensor, dim) >= 0; }) &&
         symbols_.in_range(arguments) && held_state_holds() &&
         SymValues(recording_->program.symbols(), symbols_.values_in(arguments)).guards_hold();
}

// The calls of the program are about held tensors as they were, and set gradients where there were none or some.
bool Family::held_state_holds() const {
  const Recording& was = *recording_;
  if (was.outcome.mode && *was.outcome.mode != numerics_mode()) return false;
  for (size_t i = 0; i < was.captured.size(); ++i) {
    if (!has_place(was.captured[i], was.held[i])) return false;
  }
  for (const Tensor& leaf : was.outcome.held_grad_leaves) {
    if (!leaf.defined()) continue;
    const auto c = std::find_if(was.captured.begin(), was.captured.end(),
                                [&](const Captured& held) { return held.tensor.is_same(leaf); });
    if (grad_of(leaf).defined() != c->grad_before.defined()) return false;
  }
  return true;
}

Build Family::member(const Leaves& arguments, const BuildOptions& options, double* trace_ms) const {
  const auto begin = std::chrono::steady_clock::now();
  const SymValues values(recording_->program.symbols(), symbols_.values_in(arguments));
  const auto specializer = with_reach([&](Reach reach) {
    auto made = std::make_shared<Specializer>(options, arguments, reach);
    made->watched_by(watch_);
    return made->replay(recording_->program, recording_->outcome, values) ? made : nullptr;
  });
  if (!specializer) return nullptr;
  *trace_ms = milliseconds_since(begin);
  return [specializer] { return specializer->build(); };
}

bool Family::meets_wrappers() const { return recording_->outcome.mode.has_value(); }

std::string Family::what_fixes(size_t symbol) const {
  return recording_->program.what_fixes(static_cast<int64_t>(symbol));
}

std::string Family::to_string() const {
  std::string text = symbols_.to_string();
  const SymGraph& graph = recording_->program.symbols();
  for (size_t i = 0; i < graph.guards().size(); ++i) {
    const SymGraph::Guard& g = graph.guards()[i];
    const bool is_truth = is_comparison(graph.node(g.node).op);
    text += fmt::format("  guard {} {} ({})\n", graph.to_string(g.node),
                        is_truth ? (g.answer != 0 ? "holds" : "does not hold") : fmt::format("is {}", g.answer),
                        recording_->program.place_of_guard(i));
  }
  return text;
}

}  // namespace tutti::graph

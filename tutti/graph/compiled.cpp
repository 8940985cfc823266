#include "tutti/graph/compiled.h"

#include <algorithm>

#include "tutti/graph/specialization.h"
#include "tutti/runtime/host.h"

namespace tutti::graph {

CompiledCore::CompiledCore(CompileOptions options) : options_(std::move(options)) {
  TUTTI_CHECK(options_.recompile_limit >= 1, "compile: recompile_limit is {}; expected at least 1", options_.recompile_limit);
  TUTTI_CHECK(options_.activation_memory_budget >= 0 && options_.activation_memory_budget <= 1,
              "compile: activation_memory_budget is {}; expected 0 (compute again what may be) to 1 (keep what costs time)", options_.activation_memory_budget);
  TUTTI_CHECK(options_.jobs >= 0, "compile: jobs is {}; expected 0 (all cores) or more", options_.jobs);
}

CompiledCore::~CompiledCore() = default;

bool CompiledCore::calls_inline() { return Trace::current() != nullptr; }

std::shared_ptr<const Specialization> CompiledCore::find(const Leaves& arguments) const {
  std::shared_lock lock(mutex_);
  for (const auto& s : specializations_) {
    if (s->guards.hold(arguments) && s->captured_state_holds(arguments)) return s;
  }
  return nullptr;
}

CompiledCore::Outcome CompiledCore::call(const Leaves& arguments, TraceFn trace) {
  std::shared_ptr<const Specialization> found = find(arguments);
  if (!found) found = compile(arguments, trace);
  if (!found) return {.eager = true, .structure = nullptr, .results = {}};
  return {false, found->structure, replay(found, arguments)};
}

std::shared_ptr<const Specialization> CompiledCore::compile(const Leaves& arguments, TraceFn trace) {
  std::lock_guard one(compile_mutex_);
  if (auto made = find(arguments)) return made;  // by another thread, meanwhile
  std::string reason = "first call";
  {
    std::unique_lock lock(mutex_);
    if (!specializations_.empty()) reason = specializations_.back()->guards.first_difference(arguments);
    if (reason.empty()) reason = "an argument shares memory with a tensor that the function holds, or no longer does";
    if (static_cast<int>(specializations_.size()) >= options_.recompile_limit && options_.on_limit != CompileOptions::OnLimit::forget) {
      if (options_.on_limit == CompileOptions::OnLimit::eager) {
        ++statistics_.eager_calls;
        return nullptr;
      }
      std::string list;
      for (const std::string& r : reasons_) list += "\n  " + r;
      throw RecompileLimit(fmt::format("TUTTI-CAPTURE-030 '{}' was compiled {} times and this call needs one more: {}. Reasons so far:{}\nPass what "
                                       "changes as a tensor, pad to a few shapes, raise recompile_limit, or set on_limit to eager",
                                       options_.name, specializations_.size(), reason, list));
    }
  }
  double trace_ms = 0;
  const int jobs = options_.jobs > 0 ? options_.jobs : usable_cores();
  const BuildOptions build{.name = options_.name, .partition = {options_.activation_memory_budget}, .fuse = {.fuse = options_.fuse},
                           .epilogues = options_.epilogues, .check_epilogues = options_.check_epilogues, .jobs = jobs};
  auto made = specialize(arguments, trace, build, &trace_ms);
  std::unique_lock lock(mutex_);
  if (static_cast<int>(specializations_.size()) >= options_.recompile_limit) {
    specializations_.erase(specializations_.begin());
    reasons_.erase(reasons_.begin());
  }
  specializations_.push_back(made);
  reasons_.push_back(std::move(reason));
  ++statistics_.compiles;
  statistics_.trace_ms += trace_ms;
  statistics_.partition = made->partition;
  statistics_.last = made->forward->statistics();
  statistics_.compile_ms += statistics_.last.compile_ms;
  if (made->backward) {
    statistics_.last_backward = made->backward->executable->statistics();
    statistics_.compile_ms += statistics_.last_backward.compile_ms;
  }
  return made;
}

CompileStatistics CompiledCore::statistics() const {
  std::shared_lock lock(mutex_);
  return statistics_;
}

std::string CompiledCore::explain() const {
  std::shared_lock lock(mutex_);
  std::string text = fmt::format("'{}': {} specializations\n", options_.name, specializations_.size());
  for (size_t i = 0; i < specializations_.size(); ++i) {
    const Specialization& s = *specializations_[i];
    text += fmt::format("specialization {}: {}\n", i, reasons_[i]);
    const auto describe_executable = [&](const char* what, const Executable& e) {
      const ExecutableStatistics& t = e.statistics();
      text += fmt::format("{}: {} ops captured, {} merged, {} unused; {} kernels of {} ops, {} calls, {} with epilogues that save {:.0f} bytes; "
                          "arena {} bytes (side by side {})\n{}", what,
                          t.nodes, t.merged, t.unused, t.kernels, t.fused_nodes, t.calls, t.epilogues, t.epilogue_saved_bytes, t.arena_bytes,
                          t.unplanned_bytes, e.to_string());
      for (const std::string& line : t.apart) text += "apart: " + line + "\n";
    };
    if (s.partition.read_bytes > 0) {
      text += fmt::format("the backward reads {} bytes of the forward; {} are kept, {} ops run again for the rest\n", s.partition.read_bytes,
                          s.partition.kept_bytes, s.partition.recomputed);
    }
    describe_executable("forward", *s.forward);
    if (s.backward) describe_executable("backward", *s.backward->executable);
  }
  return text;
}

}  // namespace tutti::graph

// Calls of functions that read elements: segment by segment.
#include <algorithm>

#include "tutti/graph/compiled_core.h"
#include "tutti/graph/specialization.h"

namespace tutti::graph {

// What follows a read of integers: a further one costs little more than a trace, since its kernels are there.
constexpr size_t kMaxContinuations = 64;

CompiledCore::Outcome CompiledCore::in_segments(std::shared_ptr<const Specialization> at, const Leaves& arguments,
                                                TraceFn trace, FunctionRef<Rerun()> rerun) {
  Progress progress;
  while (at->continuations) {
    run_segment(*at, arguments, progress);
    at = continuation(*at, progress, arguments, trace);
  }
  return {false, at->structure, replay(at, arguments, rerun, std::move(progress))};
}

std::shared_ptr<const Specialization> CompiledCore::continuation(const Specialization& at, const Progress& progress,
                                                                 const Leaves& arguments, TraceFn trace) {
  const Tensor& value = progress.read.back();
  const auto find = [&](bool locked) -> std::shared_ptr<const Specialization> {
    while (auto next = at.continuations->find(value, arguments)) {
      HeldWatch& watch = *next->watch;
      if (!is_due(watch) || (locked ? reads_the_same_here(watch, arguments, trace, &progress)
                                    : reads_the_same(watch, arguments, trace, &progress)))
        return next;
      at.continuations->drop(watch);
    }
    return nullptr;
  };
  if (auto next = find(false)) return next;
  std::lock_guard one(compile_mutex_);
  if (auto next = find(true)) return next;  // made by another thread, meanwhile
  using OnLimit = CompileOptions::OnLimit;
  const size_t limit = is_floating(value.dtype()) ? static_cast<size_t>(options_.recompile_limit) : kMaxContinuations;
  if (is_floating(value.dtype()) && options_.on_limit != OnLimit::forget &&
      at.continuations->entries().size() >= limit) {
    std::string list;
    for (const Continuations::Entry& e : at.continuations->entries()) list += "\n  " + to_string(e.value);
    throw RecompileLimit(fmt::format(
        "TUTTI-CAPTURE-030 '{}' was compiled for {} values of read {}, and {} is one more. Values so far:{}\nReturn "
        "the tensor "
        "and read it outside, choose with cond() or where(), raise recompile_limit, or set on_limit to forget",
        options_.name, limit, at.segments.size() - 1, to_string(value), list));
  }
  double trace_ms = 0;
  const auto next = specialize(arguments, trace, build_options(), &trace_ms, &progress)();
  const auto mark = std::mismatch(at.segments.begin(), at.segments.end(), next->segments.begin(), next->segments.end());
  if (mark.first != at.segments.end()) {
    throw CaptureError(33,
                       fmt::format("'{}' does not do the same up to read {} when it is traced again: what it does must "
                                   "depend on its arguments and on "
                                   "what it reads of tensors only. Pass other things that it depends on as arguments",
                                   options_.name, mark.first - at.segments.begin()));
  }
  at.continuations->add(value, next, limit);
  std::unique_lock lock(mutex_);
  ++statistics_.continuations;
  count(*next, trace_ms);
  return next;
}

}  // namespace tutti::graph

// Looking whether a compiled function still reads the tensors that it was traced with.
#include "tutti/graph/compiled_core.h"
#include "tutti/graph/family.h"

namespace tutti::graph {

bool CompiledCore::is_due(HeldWatch& watch) const {
  if (!may_hold_ && watch.holds_nothing()) return false;
  return watch.is_due() || options_.look == CompileOptions::Look::every_call;
}

bool CompiledCore::reads_the_same(HeldWatch& watch, const Leaves& arguments, TraceFn trace, const Progress* progress) {
  std::lock_guard one(compile_mutex_);
  return reads_the_same_here(watch, arguments, trace, progress);
}

bool CompiledCore::reads_the_same_here(HeldWatch& watch, const Leaves& arguments, TraceFn trace,
                                       const Progress* progress) {
  const bool always = options_.look == CompileOptions::Look::every_call;
  if (!always && !watch.still_due()) return true;  // another thread has looked meanwhile
  const Progress nothing;
  if (progress == nullptr && !watch.symbols() && options_.on_break == CompileOptions::OnBreak::segment)
    progress = &nothing;
  HeldWatch::Finding found;
  try {
    found = watch.look([&] { return reads_again(arguments, trace, build_options(), watch.symbols(), progress); });
  } catch (const UsageError& e) {
    // Symbols may be the reason. If not, it comes again.
    if (!watch.symbols()) throw;
    found.difference = e.what();
  }
  {
    std::unique_lock lock(mutex_);
    ++statistics_.looks;
  }
  if (found.difference.empty()) return true;
  drop(watch, found.difference);
  if (found.unseen_since == 0 || always) return false;
  throw CaptureError(
      35,
      fmt::format("'{}' no longer does what was compiled: {}. No variable that it reads became another tensor, so it "
                  "may have gone on with "
                  "the old one since call {} of this kind. Write held tensors in place, pass what changes (a list that "
                  "grows, what a pointer "
                  "leads to) as an argument, or set look = Look::every_call; the next call compiles the function anew",
                  options_.name, found.difference, found.unseen_since));
}

void CompiledCore::drop(const HeldWatch& watch, const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (std::erase_if(entries_, [&](const Entry& e) { return e.specialization->watch.get() == &watch; }) == 0) return;
  std::erase_if(families_, [&](const auto& family) { return &family->watch() == &watch; });
  replaced_ = reason + "; write it in place to keep what was compiled, or pass it as an argument";
}

}  // namespace tutti::graph

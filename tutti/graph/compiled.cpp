#include "tutti/graph/compiled_core.h"

#include <algorithm>

#include "tutti/graph/background.h"
#include "tutti/graph/family.h"
#include "tutti/graph/verify.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/numerics.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {

// Specializations of families that are kept; a further one drops the oldest, which can be made again in milliseconds.
constexpr int64_t kMaxMembers = 64;

// With OnLimit::forget there is no end to what could be told.
constexpr size_t kMaxTold = 64;

template <class T>
void keep_newest(std::vector<T>& list, size_t count) {
  if (list.size() > count) list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(count));
}

CompiledCore::CompiledCore(CompileOptions options, bool may_hold)
    : options_(std::move(options)), may_hold_(may_hold), background_(std::make_unique<BackgroundBuilds>()) {}

CompiledCore::~CompiledCore() = default;

std::shared_ptr<const Specialization> CompiledCore::find(const Leaves& arguments) const {
  std::shared_lock lock(mutex_);
  for (const Entry& e : entries_) {
    if (e.specialization->guards.hold(arguments) && e.specialization->captured_state_holds(arguments))
      return e.specialization;
  }
  return nullptr;
}

CompiledCore::Outcome CompiledCore::call(const Leaves& arguments, TraceFn trace, FunctionRef<Rerun()> rerun) {
  std::shared_ptr<const Specialization> found;
  do found = find(arguments);
  while (found && is_due(*found->watch) && !reads_the_same(*found->watch, arguments, trace));
  if (!found) found = compile(arguments, trace);
  if (!found) {
    std::unique_lock lock(mutex_);
    ++statistics_.eager_calls;
    return {.eager = true, .structure = nullptr, .results = {}};
  }
  if (found->continuations) return in_segments(std::move(found), arguments, trace, rerun);
  if (options_.verify > 0 && calls_++ % options_.verify == 0)
    return {false, found->structure, verified(found, arguments, trace, rerun)};
  return {false, found->structure, replay(found, arguments, rerun)};
}

std::vector<Tensor> CompiledCore::verified(const std::shared_ptr<const Specialization>& specialization,
                                           const Leaves& arguments, TraceFn fn, FunctionRef<Rerun()> rerun) {
  if (specialization->mode == NumericsMode::fast) return replay(specialization, arguments, rerun);
  // What the function writes through a held tensor into an argument would not reach a copy of it.
  for (const Captured& c : specialization->captured) {
    for (const Tensor& t : arguments.tensors) {
      if (inside_of(c.tensor).storage().get() == inside_of(t).storage().get())
        return replay(specialization, arguments, rerun);
    }
  }
  // A product on blocks is Tutti's, and eagerly a library's: only strict mode promises that they agree.
  const StrictScope strict;
  const Verification eager(*specialization, arguments, fn);
  std::vector<Tensor> results = replay(specialization, arguments, rerun);  // throws what the function throws
  eager.compare(options_.name, results);
  std::unique_lock lock(mutex_);
  ++statistics_.verified_calls;
  return results;
}

std::shared_ptr<const Specialization> CompiledCore::compile(const Leaves& arguments, TraceFn trace) {
  std::lock_guard one(compile_mutex_);
  if (background_->has(arguments)) return nullptr;
  std::shared_ptr<const Specialization> made;
  while ((made = find(arguments)) != nullptr) {  // by another thread, meanwhile
    if (!is_due(*made->watch) || reads_the_same_here(*made->watch, arguments, trace)) return made;
  }
  if (further_member(arguments, trace, made)) return made;
  using OnLimit = CompileOptions::OnLimit;
  const std::string reason = reason_for(arguments);
  const bool at_limit = traces_ >= options_.recompile_limit;
  if (at_limit && options_.on_limit == OnLimit::eager) return nullptr;
  const bool generalize = at_limit && options_.on_limit == OnLimit::generalize && !generalized_;
  const Symbols symbols = symbols_for(arguments, generalize);
  if (at_limit && options_.on_limit != OnLimit::forget && (!generalize || symbols.empty())) refuse_one_more(reason);
  std::string refusal;
  if (symbols.empty() || !trace_family(symbols, arguments, trace, made, refusal)) {
    double trace_ms = 0;
    const Progress nothing;
    const Build build = specialize(arguments, trace, build_options(), &trace_ms,
                                   options_.on_break == CompileOptions::OnBreak::segment ? &nothing : nullptr);
    made = finish(arguments, build, nullptr, trace_ms);
  }
  std::unique_lock lock(mutex_);
  generalized_ = generalized_ || generalize;
  if (!refusal.empty()) {
    fixed_.push_back(refusal);
    for (const DynamicDim& d : symbols.dims()) fixed_dims_.emplace_back(d.tensor, d.dim);
  }
  ++statistics_.compiles;
  ++traces_;
  reasons_.push_back(reason);
  replaced_.clear();
  keep_newest(reasons_, kMaxTold);
  keep_newest(fixed_, kMaxTold);
  keep_newest(families_, static_cast<size_t>(options_.recompile_limit) + 1);
  return made;
}

bool CompiledCore::further_member(const Leaves& arguments, TraceFn trace, std::shared_ptr<const Specialization>& made) {
  const std::vector<std::shared_ptr<const Family>> families = families_;  // some may be dropped
  for (const auto& family : families) {
    if (!family->takes(arguments)) continue;
    if (is_due(family->watch()) && !reads_the_same_here(family->watch(), arguments, trace)) continue;
    double trace_ms = 0;
    const Build build = family->member(arguments, build_options(), &trace_ms);
    if (!build) continue;
    made = finish(arguments, build, family, trace_ms);
    std::unique_lock lock(mutex_);
    ++statistics_.members;
    return true;
  }
  return false;
}

Symbols CompiledCore::symbols_for(const Leaves& arguments, bool generalize) const {
  Symbols symbols = Symbols::declared(options_.dynamic, options_.name, arguments);
  if (options_.sizes == CompileOptions::Sizes::fixed && !generalize) return symbols;
  const auto add_varying = [&](const Guards& guards) {
    if (guards.hold(arguments, [](int, int) { return true; })) symbols.add_varying(guards, arguments, fixed_dims_);
  };
  background_->for_each_kind(add_varying);
  std::shared_lock lock(mutex_);  // of entries_, which threads that compile in the background add to
  for (const Entry& e : entries_) add_varying(e.specialization->guards);
  return symbols;
}

// False when the sizes have to be integers after all, for the reason `refusal`.
bool CompiledCore::trace_family(const Symbols& symbols, const Leaves& arguments, TraceFn trace,
                                std::shared_ptr<const Specialization>& made, std::string& refusal) {
  const auto refuse = [&](const std::string& why) {
    if (symbols.num_declared() > 0)
      throw CaptureError(31, fmt::format("'{}' cannot have the sizes that dynamic() declares: {}", options_.name, why));
    refusal = why;
  };
  Build first;
  std::shared_ptr<const Family> family;
  double trace_ms = 0;
  try {
    family = Family::trace(symbols, arguments, trace, build_options(), &trace_ms, first);
  } catch (const NotSymbolic& e) {
    refuse(e.what());
    return false;
  } catch (const UsageError& e) {
    // Perhaps only because sizes were symbols. If not, it comes again.
    if (symbols.num_declared() > 0) throw;
    refuse(e.what());
    return false;
  }
  bool is_free = false;
  for (size_t s = 0; s < symbols.dims().size(); ++s) {
    const DynamicDim& d = symbols.dims()[s];
    const std::string why = family->what_fixes(s);
    is_free = is_free || why.empty();
    if (why.empty()) continue;
    const std::string text = fmt::format("s{} = {}: {}", s, describe(d), why);
    if (s < symbols.num_declared()) refuse(text);
    std::unique_lock lock(mutex_);
    fixed_.push_back(text);
    fixed_dims_.emplace_back(d.tensor, d.dim);
  }
  if (!is_free) family = nullptr;
  if (family) {
    std::unique_lock lock(mutex_);
    families_.push_back(family);
  }
  made = finish(arguments, first, family, trace_ms);
  return true;
}

std::shared_ptr<const Specialization> CompiledCore::finish(const Leaves& arguments, const Build& build,
                                                           std::shared_ptr<const Family> family, double trace_ms) {
  // Meanwhile calls would choose the layouts of distributed tensors by their own sizes, and this family has chosen them
  // for all sizes: a rank that is still waiting would send other messages than one that is ready.
  if (options_.first_call == CompileOptions::FirstCall::waits || (family && family->meets_wrappers())) {
    auto made = build();
    add(made, std::move(family), trace_ms);
    return made;
  }
  background_->start(Guards::of(arguments),
                     [this, build, family = std::move(family), trace_ms] { add(build(), family, trace_ms); });
  return nullptr;
}

std::string CompiledCore::reason_for(const Leaves& arguments) const {
  std::shared_lock lock(mutex_);
  if (!replaced_.empty()) return replaced_;
  if (entries_.empty()) return "first call";
  const std::string difference = entries_.back().specialization->guards.first_difference(arguments);
  return !difference.empty() ? difference
                             : "a tensor that the function holds has another shape, requires_grad or gradient, or "
                               "shares other memory with the arguments, or the numerics mode is another one";
}

void CompiledCore::refuse_one_more(const std::string& reason) const {
  std::string list;
  for (const std::string& r : reasons_) list += "\n  " + r;
  for (const std::string& f : fixed_) list += "\nSizes that are no symbols: " + f;
  throw RecompileLimit(fmt::format(
      "TUTTI-CAPTURE-030 '{}' was compiled {} times and this call needs one more: {}. Reasons so far:{}\nPass what "
      "changes as a tensor, pad to a few shapes, raise recompile_limit, or set on_limit to eager, forget or generalize",
      options_.name, traces_, reason, list));
}

BuildOptions CompiledCore::build_options() const {
  return {.name = options_.name,
          .partition = {options_.activation_memory_budget},
          .collectives = options_.collectives,
          .fuse = {.fuse = options_.fuse},
          .epilogues = options_.epilogues,
          .prologues = options_.prologues,
          .check_epilogues = options_.check_epilogues,
          .siblings = options_.siblings,
          .batch = options_.batch,
          .jobs = options_.jobs > 0 ? options_.jobs : usable_cores()};
}

void CompiledCore::add(std::shared_ptr<const Specialization> made, std::shared_ptr<const Family> family,
                       double trace_ms) {
  std::unique_lock lock(mutex_);
  const auto drop_oldest = [&](bool member) {
    const auto oldest =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return (e.family != nullptr) == member; });
    if (oldest == entries_.end()) return;
    entries_.erase(oldest);
  };
  const auto members =
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.family != nullptr; });
  if (family && members >= kMaxMembers) drop_oldest(true);
  if (!family && static_cast<int64_t>(entries_.size()) - members >= options_.recompile_limit) drop_oldest(false);
  count(*made, trace_ms);
  entries_.push_back({std::move(made), std::move(family)});
}

void CompiledCore::count(const Specialization& made, double trace_ms) {
  statistics_.trace_ms += trace_ms;
  statistics_.partition = made.partition;
  statistics_.last = made.forward->statistics();
  statistics_.compile_ms += statistics_.last.compile_ms;
  if (!made.backward) return;
  statistics_.last_backward = made.backward->executable->statistics();
  statistics_.compile_ms += statistics_.last_backward.compile_ms;
}

}  // namespace tutti::graph

// compile() on one rank: the specializations of one function.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tutti/graph/compiled_function.h"

namespace tutti {
namespace graph {

struct Progress;
struct Specialization;
class HeldWatch;
class Family;
class BackgroundBuilds;
using Build = std::function<std::shared_ptr<const Specialization>()>;

// The code of a function that one rank has compiled; see compiled_function.h.
class CompiledCore {
 public:
  // may_hold: the function object has state, so the tensors it reads may be replaced.
  CompiledCore(CompileOptions options, bool may_hold);
  ~CompiledCore();

  using Outcome = CallOutcome;
  // May be called by any thread of the rank. One thread at a time compiles or checks; others that need the same result
  // wait. A failed compilation leaves nothing behind.
  Outcome call(const Leaves& arguments, TraceFn trace, FunctionRef<Rerun()> rerun);
  CompileStatistics statistics() const;
  std::string explain() const;

 private:
  std::shared_ptr<const Specialization> find(const Leaves& arguments) const;
  std::shared_ptr<const Specialization> compile(const Leaves& arguments, TraceFn trace);
  // Counts a call; returns whether the captured tensors must be checked before the call continues.
  bool is_due(HeldWatch& watch) const;
  // Whether the function still reads the same tensors; if not, everything from that trace is dropped. progress: for a
  // check in the middle of a call in segments. The second function is for callers that hold compile_mutex_.
  bool reads_the_same(HeldWatch& watch, const Leaves& arguments, TraceFn trace, const Progress* progress = nullptr);
  bool reads_the_same_here(HeldWatch& watch, const Leaves& arguments, TraceFn trace,
                           const Progress* progress = nullptr);
  void drop(const HeldWatch& watch, const std::string& reason);
  // Makes a specialization from an existing symbolic trace. False when none covers the arguments; `made` stays null
  // while a background thread compiles it.
  bool further_member(const Leaves& arguments, TraceFn trace, std::shared_ptr<const Specialization>& made);
  // Runs a call in segments, beginning with `at`, which ends in a read.
  Outcome in_segments(std::shared_ptr<const Specialization> at, const Leaves& arguments, TraceFn trace,
                      FunctionRef<Rerun()> rerun);
  // The segment that follows `at` for the value read last.
  std::shared_ptr<const Specialization> continuation(const Specialization& at, const Progress& progress,
                                                     const Leaves& arguments, TraceFn trace);
  std::vector<Tensor> verified(const std::shared_ptr<const Specialization>& specialization, const Leaves& arguments,
                               TraceFn fn, FunctionRef<Rerun()> rerun);
  std::string reason_for(const Leaves& arguments) const;
  [[noreturn]] void refuse_one_more(const std::string& reason) const;
  Symbols symbols_for(const Leaves& arguments, bool generalize) const;
  bool trace_family(const Symbols& symbols, const Leaves& arguments, TraceFn trace,
                    std::shared_ptr<const Specialization>& made, std::string& refusal);
  BuildOptions build_options() const;
  std::shared_ptr<const Specialization> finish(const Leaves& arguments, const Build& build,
                                               std::shared_ptr<const Family> family, double trace_ms);
  void add(std::shared_ptr<const Specialization> made, std::shared_ptr<const Family> family, double trace_ms);

  void count(const Specialization& made, double trace_ms);

  const CompileOptions options_;
  const bool may_hold_;
  mutable std::shared_mutex mutex_;  // protects the members below, up to statistics_
  // A specialization that calls can use.
  struct Entry {
    std::shared_ptr<const Specialization> specialization;
    std::shared_ptr<const Family> family;  // the symbolic trace it was made from; null: it has a trace of its own
  };
  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<const Family>> families_;
  std::vector<std::string> reasons_;             // why the function was traced, one entry per trace
  std::string replaced_;                         // why specializations were dropped, until the function is traced again
  std::vector<std::string> fixed_;               // why varying sizes are not symbolic
  std::vector<std::pair<int, int>> fixed_dims_;  // these sizes, as (tensor, dim)
  int traces_ = 0;                               // traces that count toward the limit
  bool generalized_ = false;
  CompileStatistics statistics_;
  std::mutex compile_mutex_;  // held while compiling or checking
  std::atomic<int64_t> calls_{0};
  std::unique_ptr<BackgroundBuilds> background_;  // must be the last member, because its threads use the others
};

}  // namespace graph
}  // namespace tutti

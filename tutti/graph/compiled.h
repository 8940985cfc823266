// What stands behind compile(): the specializations of one function.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tutti/graph/capture_error.h"
#include "tutti/graph/executable.h"
#include "tutti/graph/symbols.h"
#include "tutti/runtime/function_ref.h"

namespace tutti {

struct CompileOptions {
  std::string name = "function";  // in errors and traces
  // Of the memory between forward and backward that costs little time to keep: 1 keeps it, 0 computes all again that may be,
  // see passes/partition.h. Equal bits at every budget.
  double activation_memory_budget = 1.0;
  // Collectives begin as soon as their inputs are there while results of at most under_way_bytes wait for a reader, and small
  // neighbours of one kind, with results of at most bucket_bytes together, become one call. 0: neither. Buckets are off
  // unless asked for: all ranks must make them, so all need the option, and collectives that depend on each other alike.
  graph::CollectiveOptions collectives = {};
  bool fuse = true;               // false: every op by itself, for looking at what fusion does
  graph::Epilogues epilogues = graph::Epilogues::saving;  // which kernels run on blocks of the matrix products that they follow
  bool prologues = true;          // kernels run inside the matrix products that alone read what they make
  bool check_epilogues = false;   // runs both of these both ways and throws InternalError where a bit differs; as TUTTI_CHECK_EPILOGUES=1
  bool batch = true;              // false: a launch per kernel, for looking at what sharing launches does
  int recompile_limit = 16;       // specializations of one function
  // What happens at the limit.
  enum class OnLimit : uint8_t {
    error,       // RecompileLimit, which lists what differed
    eager,       // further kinds of arguments run op by op
    forget,      // the oldest specialization makes room: for sizes that vary without end and seldom come again
    generalize,  // sizes that vary become symbols, with Sizes::fixed too; when that is not enough, RecompileLimit
  };
  OnLimit on_limit = OnLimit::error;
  // Sizes of arguments.
  enum class Sizes : uint8_t {
    automatic,  // one that comes with a second value becomes a symbol
    fixed,      // each combination is compiled for itself
  };
  Sizes sizes = Sizes::automatic;
  std::vector<DynamicDim> dynamic = {};  // symbols from the first call on; CaptureError when the function needs one value
  // What a call does that nothing was compiled for.
  enum class FirstCall : uint8_t {
    waits,       // until its kernels are compiled
    runs_eager,  // traces, then runs op by op, as later calls do until another thread has compiled the kernels
  };
  FirstCall first_call = FirstCall::waits;
  // What happens where the function reads elements of a tensor (item(), to_contiguous(), to_string()).
  enum class OnBreak : uint8_t {
    error,    // CaptureError
    segment,  // it runs in segments, see docs/compiler.md: up to the read, and then what is compiled for the value that was read
  };
  OnBreak on_break = OnBreak::error;
  // When the function runs once more on tensors without elements, to see whether it still reads the tensors that it held.
  enum class Look : uint8_t {
    seldom,      // when something traced is used for the second, 4th, 8th, 16th, ... time, and whenever a Tensor object that it reads is lost
    every_call,  // which finds everything, for the time of a trace
  };
  Look look = Look::seldom;
  int verify = 0;                 // n > 0: every n-th call, the first one too, is compared with an eager run, see verify.h
  int jobs = 0;                   // kernels compiled at once; 0: the cores this process may use
};

// The function was called with more kinds of arguments than CompileOptions::recompile_limit.
class RecompileLimit : public UsageError {
 public:
  using UsageError::UsageError;
};

struct CompileStatistics {
  int64_t compiles = 0;      // times that the function was traced
  int64_t members = 0;       // specializations made for further sizes of a trace
  int64_t eager_calls = 0;   // past the limit, or while kernels are compiled
  int64_t verified_calls = 0;
  int64_t looks = 0;         // times that it ran once more for CompileOptions::look
  int64_t continuations = 0; // segments that were compiled for a value that the function read
  double trace_ms = 0, compile_ms = 0;
  graph::PartitionStatistics partition;       // of the newest specialization
  graph::ExecutableStatistics last;           // of the newest specialization's forward
  graph::ExecutableStatistics last_backward;  // and backward, if it has one
};

namespace graph {

struct Progress;
struct Specialization;
class HeldWatch;
class Family;
class BackgroundBuilds;
using Rerun = std::function<void(std::vector<Tensor>&)>;
using Build = std::function<std::shared_ptr<const Specialization>()>;

class CompiledCore {
 public:
  // may_hold: the function has state of its own, so what it reads may become other tensors.
  CompiledCore(CompileOptions options, bool may_hold);
  ~CompiledCore();

  struct Outcome {
    bool eager = false;  // the limit is reached and the caller runs the function itself
    std::shared_ptr<const void> structure;
    std::vector<Tensor> results;
  };
  // Any thread. One thread compiles or looks, others that need the same wait; a failed compile leaves nothing behind.
  Outcome call(const Leaves& arguments, TraceFn trace, FunctionRef<Rerun()> rerun);
  // Inside another trace a compiled function is a part of that.
  static bool calls_inline();

  CompileStatistics statistics() const;
  std::string explain() const;

 private:
  std::shared_ptr<const Specialization> find(const Leaves& arguments) const;
  std::shared_ptr<const Specialization> compile(const Leaves& arguments, TraceFn trace);
  // Counts a call for the watch. Whether the function has to be looked at before that goes on.
  bool is_due(HeldWatch& watch) const;
  // Whether the function reads what it read; if not, everything from that trace is dropped. progress: in the middle of a call in
  // segments. The second is for who has compile_mutex_.
  bool reads_the_same(HeldWatch& watch, const Leaves& arguments, TraceFn trace, const Progress* progress = nullptr);
  bool reads_the_same_here(HeldWatch& watch, const Leaves& arguments, TraceFn trace, const Progress* progress = nullptr);
  void drop(const HeldWatch& watch, const std::string& reason);
  // False when no family takes the arguments; `made` stays null while another thread compiles.
  bool further_member(const Leaves& arguments, TraceFn trace, std::shared_ptr<const Specialization>& made);
  // A call that begins with `at`, which ends in a read.
  Outcome in_segments(std::shared_ptr<const Specialization> at, const Leaves& arguments, TraceFn trace, FunctionRef<Rerun()> rerun);
  // What follows `at` for what was read last.
  std::shared_ptr<const Specialization> continuation(const Specialization& at, const Progress& progress, const Leaves& arguments, TraceFn trace);
  std::vector<Tensor> verified(const std::shared_ptr<const Specialization>& specialization, const Leaves& arguments, TraceFn fn,
                               FunctionRef<Rerun()> rerun);
  std::string reason_for(const Leaves& arguments) const;
  [[noreturn]] void refuse_one_more(const std::string& reason) const;
  Symbols symbols_for(const Leaves& arguments, bool generalize) const;
  bool trace_family(const Symbols& symbols, const Leaves& arguments, TraceFn trace, std::shared_ptr<const Specialization>& made, std::string& refusal);
  BuildOptions build_options() const;
  std::shared_ptr<const Specialization> finish(const Leaves& arguments, const Build& build, std::shared_ptr<const Family> family, double trace_ms);
  void add(std::shared_ptr<const Specialization> made, std::shared_ptr<const Family> family, double trace_ms);

  void count(const Specialization& made, double trace_ms);

  const CompileOptions options_;
  const bool may_hold_;
  mutable std::shared_mutex mutex_;  // of specializations_ and what follows
  // What can be called now; members of a family know it.
  struct Entry {
    std::shared_ptr<const Specialization> specialization;
    std::shared_ptr<const Family> family;  // null: traced for itself
  };
  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<const Family>> families_;
  std::vector<std::string> reasons_;  // why the function was traced, each time
  std::string replaced_;              // why something was dropped, until the function is traced for it
  std::vector<std::string> fixed_;    // why sizes that vary are no symbols
  std::vector<std::pair<int, int>> fixed_dims_;  // those of tensor, dim
  int traces_ = 0;         // that count towards the limit
  bool generalized_ = false;
  CompileStatistics statistics_;
  std::mutex compile_mutex_;         // one compile at a time
  std::atomic<int64_t> calls_{0};
  std::unique_ptr<BackgroundBuilds> background_;  // the last member: its threads use the others
};

}  // namespace graph
}  // namespace tutti

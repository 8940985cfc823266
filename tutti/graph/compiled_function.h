// A compiled function as all threads of the process see it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/compiled.h"
#include "tutti/graph/tree.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

class CompiledCore;
using Rerun = std::function<void(std::vector<Tensor>&)>;

struct CallOutcome {
  bool eager = false;  // the caller must run the function eagerly
  std::shared_ptr<const void> structure;
  std::vector<Tensor> results;
};

// Compiled code belongs to the ranks that called, each of which has a CompiledCore. May be used by any thread.
class CompiledFunction {
 public:
  // may_hold: the function object has state, so the tensors it reads may be replaced. UsageError for options out of
  // range.
  CompiledFunction(CompileOptions options, bool may_hold);
  ~CompiledFunction();
  CompiledFunction(const CompiledFunction&) = delete;
  CompiledFunction& operator=(const CompiledFunction&) = delete;

  CallOutcome call(const Leaves& arguments, TraceFn trace, FunctionRef<Rerun()> rerun) const;
  // Whether a trace is running, of which a call of this function becomes a part.
  static bool calls_inline();
  // Both tell what the rank of this thread has compiled.
  CompileStatistics statistics() const;
  std::string explain() const;

 private:
  class Cores;
  class RankOfCores;
  CompiledCore& here() const;
  const CompileOptions options_;
  const bool may_hold_;
  const std::shared_ptr<Cores> cores_;
};

}  // namespace tutti::graph

// A compiled function as all threads of the process see it: per rank, the kinds of calls that were compiled there.
//
// What a trace records is what the function did on one rank: it may ask for the rank, the mesh or the groups of a rank, and with a
// distributed argument the graph has the sizes of the part of that rank. So ranks that are threads share kernels, but neither
// traces nor what decides about them (which sizes vary, how many kinds there are, when a call is verified): as in processes of their
// own, these follow from the calls of the rank alone, and ranks that make the same calls make the same decisions.
#pragma once

#include <memory>
#include <string>

#include "tutti/graph/compiled.h"

namespace tutti::graph {

// May be used by any thread.
class CompiledFunction {
 public:
  // may_hold: the function object has state, so the tensors it reads may be replaced. UsageError for options out of range.
  CompiledFunction(CompileOptions options, bool may_hold);
  ~CompiledFunction();
  CompiledFunction(const CompiledFunction&) = delete;
  CompiledFunction& operator=(const CompiledFunction&) = delete;

  // What the rank of this thread has compiled. It lives as long as both the function and the rank.
  CompiledCore& here() const;

 private:
  class Cores;
  class RankOfCores;
  const CompileOptions options_;
  const bool may_hold_;
  const std::shared_ptr<Cores> cores_;
};

}  // namespace tutti::graph

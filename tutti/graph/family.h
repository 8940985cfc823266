// Specializations that differ in sizes only.
#pragma once

#include <memory>
#include <string>

#include "tutti/graph/specialization.h"

namespace tutti::graph {

// Specializations that differ in sizes only: the function was traced once with symbols for them, and each is made from
// what was written down then. Immutable; any thread.
class Family {
 public:
  ~Family();
  // Traces; `first` makes the specialization for `arguments`. Throws as specialize(), and NotSymbolic.
  static std::shared_ptr<Family> trace(const Symbols& symbols, const Leaves& arguments, TraceFn fn, const BuildOptions& options, double* trace_ms,
                                       Build& first);
  // Whether sizes and everything else are such that the function would do the same.
  bool takes(const Leaves& arguments) const;
  // Makes the specialization for arguments that it takes; null when strides of these sizes lead to other calls.
  Build member(const Leaves& arguments, const BuildOptions& options, double* trace_ms) const;

  const Symbols& symbols() const { return symbols_; }
  HeldWatch& watch() const { return *watch_; }
  // Why symbol `index` can have one value only; empty when it can have others.
  std::string what_fixes(size_t index) const;
  // Symbols and guards, for people.
  std::string to_string() const;

 private:
  struct Recording;
  bool held_state_holds() const;
  Family(Symbols symbols, const Leaves& arguments);
  Symbols symbols_;
  Guards guards_;
  std::shared_ptr<HeldWatch> watch_;
  std::unique_ptr<Recording> recording_;
};

}  // namespace tutti::graph

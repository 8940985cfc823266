// Families of specializations that differ only in sizes.
#pragma once

#include <memory>
#include <string>

#include "tutti/graph/specialization.h"

namespace tutti::graph {

// Specializations that differ only in sizes. The function was traced once with symbolic sizes, and each specialization
// is made from that recording. Immutable; may be used by any thread.
class Family {
 public:
  ~Family();
  // Traces the function; `first` makes the specialization for `arguments`. Throws the errors of specialize(), and
  // NotSymbolic.
  static std::shared_ptr<Family> trace(const Symbols& symbols, const Leaves& arguments, TraceFn fn,
                                       const BuildOptions& options, double* trace_ms, Build& first);
  // Whether the recording is valid for these arguments.
  bool takes(const Leaves& arguments) const;
  // Makes the specialization for arguments that takes() accepts; null when the strides for these sizes lead to other
  // calls.
  Build member(const Leaves& arguments, const BuildOptions& options, double* trace_ms) const;

  const Symbols& symbols() const { return symbols_; }
  HeldWatch& watch() const { return *watch_; }
  // Whether the function has to do with wrappers.
  bool meets_wrappers() const;
  // Why symbol `index` can have only one value; empty when it can have others.
  std::string what_fixes(size_t index) const;
  // A readable list of symbols and guards.
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

// CommCounter: the collectives and bytes of redistributions, by kind and by module, while it lives.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tutti/dist/redistribute.h"

namespace tutti::dist {

struct CommCount {
  int64_t collectives = 0;
  double bytes = 0;  // that a rank receives
};

// Counts what the thread that made it starts, backward included. Counters nest; each counts.
class CommCounter {
 public:
  CommCounter();
  ~CommCounter();
  CommCounter(const CommCounter&) = delete;
  CommCounter& operator=(const CommCounter&) = delete;

  CommCount total() const;
  CommCount of(StepKind kind) const;
  // By module path, "" outside of modules, then by kind.
  const std::map<std::string, std::map<StepKind, CommCount>>& by_module() const { return counts_; }
  // A line per module and kind.
  std::string to_string() const;

  // For the code that runs steps.
  static void note(const RedistributeStep& step);

 private:
  CommCounter* const outer_;
  const bool kept_places_;  // of this thread
  std::map<std::string, std::map<StepKind, CommCount>> counts_;
};

}  // namespace tutti::dist

// merged(): a metric over the examples of all ranks.
#pragma once

#include <string>

#include "tutti/comm/process_group.h"

namespace tutti::parallel {

// The metric of the examples that all ranks of `group` have added, the same on every rank; null: `own`. Collective. A
// Metric has to_bytes(), from_bytes() and add(const Metric&), as those of nn/click_metrics.h.
template <class Metric>
Metric merged(const Metric& own, comm::ProcessGroup* group) {
  if (group == nullptr || group->size() == 1) return own;
  Metric all;
  for (const std::string& bytes : group->all_gather_bytes(own.to_bytes())) all.add(Metric::from_bytes(bytes));
  return all;
}

}  // namespace tutti::parallel

// What the ranks of a package tell each other between the parts of packaging, so that a rank that fails does not leave
// the others waiting.
#pragma once

#include <string>

#include "tutti/deploy/rank_group.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::package_detail {

// All ranks of all groups make the same parts in the same order, with the groups in the same order.
class RankAgreement {
 public:
  // The groups must outlive it. Without groups, parts just run.
  explicit RankAgreement(const deploy::BoundGroups& groups) : groups_(groups) {}
  // Runs `work`, which may communicate, and waits for the other ranks, also where it throws. Afterwards throws its
  // error; else, or where the error of another rank has disturbed the calls of `work`, a UsageError that names the rank
  // and says what it has thrown, or at which other part it is.
  void part(const std::string& name, FunctionRef<void()> work) const;

 private:
  const deploy::BoundGroups& groups_;
};

}  // namespace tutti::package_detail

// Process groups as those in which packages communicate.
#pragma once

#include <memory>

#include "tutti/comm/process_group.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/deploy/tutti_collectives.h"

namespace tutti::comm {

// For PackageOptions::groups and deploy::Package::set_groups.
std::shared_ptr<deploy::RankGroup> rank_group(std::shared_ptr<ProcessGroup> group);

// The group for tutti_package_set_groups(), also of a runtime of packages that was linked by itself. Its table must not
// outlive it.
class CollectivesInC {
 public:
  explicit CollectivesInC(std::shared_ptr<ProcessGroup> group);
  const tutti_collectives& table() const { return table_; }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  tutti_collectives table_;
};

}  // namespace tutti::comm

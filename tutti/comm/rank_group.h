// Process groups as those in which packages communicate.
#pragma once

#include <memory>

#include "tutti/comm/process_group.h"
#include "tutti/deploy/rank_group.h"

namespace tutti::comm {

// For PackageOptions::groups and deploy::Package::set_groups.
std::shared_ptr<deploy::RankGroup> rank_group(std::shared_ptr<ProcessGroup> group);

}  // namespace tutti::comm

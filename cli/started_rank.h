// This process as a rank that a launcher has started.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/process_group.h"
#include "tutti/job/rendezvous/launch_variables.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::cli {

// Cores are shared out between the ranks of this host unless the user says otherwise; 0: TUTTI_THREADS says.
int threads_of_rank(const comm::LaunchPlace& place);

// Ends with its launcher. Its world has the transport of that name; "auto": the best one.
class StartedRank {
 public:
  // UsageError for a transport that moves no data.
  StartedRank(const comm::LaunchPlace& place, const std::string& transport);
  comm::ProcessGroup& group() const { return *group_; }

 private:
  RankContext context_;
  RankContext::Scope scope_;
  std::shared_ptr<comm::ProcessGroup> group_;
};

}  // namespace tutti::cli

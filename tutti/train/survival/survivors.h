// Survivors: the ranks of a run that outlives one of them (docs/surviving.md), and this rank's place among them.
//
// The launcher says who works together: a team. When a rank is lost, the others leave what they were doing, form the
// next team, which has new groups, and go on from the state in the job's memory. So does a replacement that the
// launcher has started.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/job/host/job_file.h"
#include "tutti/job/host/liveness.h"
#include "tutti/train/trainer.h"

namespace tutti::train {

struct Survivors {
  std::shared_ptr<comm::JobFile> job;
  uint64_t team = 0;
  std::vector<comm::TeamMember> members;  // by rank
  int rank = 0;
  std::unique_ptr<comm::Liveness> liveness;  // of the members

  // Whether a member is gone: it has died, or the launcher has begun a team without it. A team with one more has lost
  // nobody.
  bool has_lost_one() const;
  // Whether another team begins, because a member is gone or one joins.
  bool is_replaced() const { return job->team() != team; }
};

// The team is over because a rank has joined it or left it: what is thrown out of the work of this team.
class TeamIsOver : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

struct SurvivorPlace {
  int seat = 0;     // the rank's number on its host
  int threads = 0;  // per rank; 0: the default
  std::string transport = "";
};

// train(), by the ranks of a launcher that survives the loss of a rank; each calls it. Where there is no such launcher,
// UsageError that says what to do. The losses, gradient norms and checkpoints have the bits of a run that loses nobody.
TrainerResult train_with_survivors(const Config& config, const TrainerOptions& options, const SurvivorPlace& place);

}  // namespace tutti::train

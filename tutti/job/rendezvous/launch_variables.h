// The environment variables by which launchers describe a rank's place in its job.
//
// rank and size    Tutti: TUTTI_RANK, TUTTI_WORLD_SIZE, TUTTI_LOCAL_RANK, TUTTI_LOCAL_WORLD_SIZE
//                  torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//                  Open MPI: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//                  MPICH: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
//                  Slurm: SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
// store address    host: MASTER_ADDR (else the first host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, or 127.0.0.1
// when
//                  all ranks are on one host). Port: TUTTI_STORE_PORT, else MASTER_PORT (else, under Slurm, one derived
//                  from the job and step ids). Without any of these, ranks that MPI or Slurm has started on one host
//                  find each other through the process that has started them (local_meeting.h)
// store server     the launcher with TUTTI_STORE_HOSTED=1; otherwise rank 0. Under torchrun
// (TORCHELASTIC_USE_AGENT_STORE=True), whose own
//                  store is not a Tutti store, TUTTI_STORE_PORT has to say where rank 0 serves.
//
// Launchers nest (Slurm starts mpirun, which starts torchrun), so the first family in this list that is set is used.
// Tutti's and torchrun's variables, and those of the two MPIs, may be set together and must then agree.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::comm {

struct LaunchPlace {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::string launcher;  // "torchrun", for messages
  bool operator==(const LaunchPlace&) const = default;
};

// The place of this rank; nullopt when no launcher's variables are set. UsageError when they are incomplete, are not
// numbers, or contradict each other.
std::optional<LaunchPlace> read_launch_place();

struct MeetingPoint {
  std::string host;
  int port = 0;
  bool is_hosted = false;  // the launcher serves the store
  // If not nullptr, there is no port: the ranks of one host meet by local_meeting.h, and this variable holds their
  // rank.
  const char* rank_variable = nullptr;
};

// The address of the store. UsageError, naming the variable to set, when host or port cannot be determined.
MeetingPoint read_meeting_point(const LaunchPlace& place);

// "node[03-05,9],gpu1" -> "node03". UsageError when the brackets do not close.
std::string slurm_first_host(std::string_view nodelist);

}  // namespace tutti::comm

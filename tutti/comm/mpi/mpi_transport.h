// The transport for ranks started by mpirun, on one or several hosts.
#pragma once

#include <memory>

#include "tutti/comm/transports.h"

namespace tutti::comm {

// Needs no store: seat.world_ranks are the members' ranks in MPI_COMM_WORLD (empty: 0, 1, ...). Any ranks can
// form a group without the others. UsageError when a world rank does not exist, or when this rank's is not that of this process;
// EnvironmentError when MPI cannot be started.
std::unique_ptr<Transport> make_mpi_transport(const GroupSeat& seat);

}  // namespace tutti::comm

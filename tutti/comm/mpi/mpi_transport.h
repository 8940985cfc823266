// The transport of ranks that mpirun started, on one host or many.
#pragma once

#include <memory>

#include "tutti/comm/transports.h"

namespace tutti::comm {

// Needs no store: the members' places are seat.world_ranks, ranks of MPI_COMM_WORLD (empty: 0, 1, ...). Any members can
// form a group, without the others. UsageError when a world rank does not exist or is not this process's own;
// EnvironmentError when MPI cannot be started.
std::unique_ptr<Transport> make_mpi_transport(const GroupSeat& seat);

}  // namespace tutti::comm

// Shared memory inside hosts, a network between them: found out when the group is made.
#pragma once

#include <memory>

#include "tutti/comm/transports.h"

namespace tutti::comm {

// Collective over the seat's members. Between hosts it is mpi under mpirun, else gloo. When all members can share memory
// it is shm alone. UsageError without a store, and when this build has no transport between hosts.
std::unique_ptr<Transport> make_hier_transport(const GroupSeat& seat);

}  // namespace tutti::comm

// Creation of the transport that uses shared memory inside hosts and a network between them.
#pragma once

#include <memory>

#include "tutti/comm/transports.h"

namespace tutti::comm {

// Collective over the members. Between hosts it uses mpi under mpirun, else gloo; if all members can share memory, the result is
// shm alone. UsageError without a store, and when this build has no transport between hosts.
std::unique_ptr<Transport> make_hier_transport(const GroupSeat& seat);

}  // namespace tutti::comm

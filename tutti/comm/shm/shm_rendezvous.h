// Creation of the shared memory of a group whose members are processes of one host.
#pragma once

#include <memory>

#include "tutti/comm/transports.h"

namespace tutti::comm {

// Collective over the members. Rank 0 creates the memory and passes its descriptor; nothing is left in the file
// system.
std::unique_ptr<Transport> make_shm_transport(const GroupSeat& seat);

}  // namespace tutti::comm

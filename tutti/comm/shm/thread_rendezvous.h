// Creation of the shared memory of a group whose members are threads of this process.
#pragma once

#include <memory>

#include "tutti/comm/transports.h"

namespace tutti::comm {

// Every member calls it with the same key; the first caller creates the memory. Never waits.
std::unique_ptr<Transport> make_thread_transport(const GroupSeat& seat);

}  // namespace tutti::comm

// The collectives of a group on GPUs.
#pragma once

#include <memory>

#include "tutti/comm/nccl/nccl_communicator.h"

namespace tutti::comm {

// Blocks until all ranks of the group are there. Throws what NcclCommunicator does.
std::shared_ptr<Backend> make_nccl_backend(NcclOptions options);

}  // namespace tutti::comm

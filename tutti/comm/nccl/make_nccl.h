// Creation of the backend for the collectives of a group on GPUs.
#pragma once

#include <memory>

#include "tutti/comm/nccl/nccl_communicator.h"

namespace tutti::comm {

// Blocks until all ranks of the group have joined. Throws the errors of NcclCommunicator.
std::shared_ptr<Backend> make_nccl_backend(NcclOptions options);

}  // namespace tutti::comm

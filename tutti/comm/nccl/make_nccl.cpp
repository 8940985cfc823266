// Creation of the backend for the collectives of a group on GPUs.
#include "tutti/comm/device_backends.h"
#include "tutti/comm/nccl/nccl_backend.h"

namespace tutti::comm {

TUTTI_DEVICE_BACKEND(nccl,
                     [](const GroupSeat& seat, Device device,
                        std::chrono::milliseconds timeout) -> std::shared_ptr<Backend> {
                       return std::make_shared<NcclBackend>(NcclOptions{.group = seat.key,
                                                                        .store = seat.store,
                                                                        .rank = seat.rank,
                                                                        .size = seat.size,
                                                                        .device = device,
                                                                        .timeout = timeout});
                     });

}  // namespace tutti::comm

#include "tutti/comm/nccl/make_nccl.h"

#include "tutti/comm/nccl/nccl_backend.h"

namespace tutti::comm {

std::shared_ptr<Backend> make_nccl_backend(NcclOptions options) { return std::make_shared<NcclBackend>(std::move(options)); }

}  // namespace tutti::comm

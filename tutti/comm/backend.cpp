#include "tutti/comm/backend.h"

#include "tutti/comm/collective_def.h"
#include "tutti/core/error.h"

namespace tutti::comm {

void Backend::unsupported(std::string_view method) const {
  throw UsageError(fmt::format("backend {} does not support {}", name(), method));
}

Work Backend::run(const CollectiveCall& call) { unsupported(definition(call.kind).name); }
Work Backend::send(const Tensor&, int, uint32_t, const CallOptions&) { unsupported("send"); }
Work Backend::recv(const Tensor&, int, uint32_t, const CallOptions&) { unsupported("recv"); }
Work Backend::batch_isend_irecv(std::span<const PointToPoint>, const CallOptions&) { unsupported("batch_isend_irecv"); }

}  // namespace tutti::comm

// Copies of tensors with gaps are kernels, which libtutti_ranks does not have: tensors of programs in C have none.
// Weak, because a program that also links libtutti_runtime statically has them.
#include "tutti/core/error.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::facets {

[[gnu::weak]] void raw_copy(const Tensor& target, const Tensor& source) {
  throw InternalError(fmt::format("libtutti_ranks has no copy of {} to {}", describe(source), describe(target)));
}

}  // namespace tutti::facets

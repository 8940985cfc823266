#include "tutti/parallel/dispatch_counts.h"

#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {

DispatchCounts& dispatch_counts() { return RankContext::current().slot<DispatchCounts>(); }

}  // namespace tutti::parallel

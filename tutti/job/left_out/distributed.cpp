#include "tutti/job/distributed.h"

namespace tutti::comm {

std::string_view why_not_distributed() { return "this build has TUTTI_DISTRIBUTED=OFF; configure with -DTUTTI_DISTRIBUTED=ON"; }

}  // namespace tutti::comm

#include "tutti/job/distributed.h"

namespace tutti::comm {

std::string_view why_not_distributed() { return ""; }

}  // namespace tutti::comm

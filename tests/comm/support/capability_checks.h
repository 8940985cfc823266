// can() says yes exactly when the call succeeds, and the reason of a no is that of the refusal.
#pragma once

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// Every kind, dtype and reduce op; every rank calls it and throws when can() was wrong. `with_peers`: the transport can
// see that the ranks' sizes differ.
void check_capabilities(ProcessGroup& group, bool with_peers);

}  // namespace tutti::comm

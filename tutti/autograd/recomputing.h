// Whether a forward runs again.
#pragma once

namespace tutti {

// Whether this thread runs a region of checkpoint() again, in backward: what counts the calls of a forward leaves these
// out.
bool is_recomputing();

}  // namespace tutti

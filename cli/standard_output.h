// Results go to the standard output, and a command whose results did not arrive has failed.
#pragma once

namespace tutti::cli {

// Flushes the standard output. Returns `status` if all that was written to it arrived; else says why on stderr and
// returns `failed`.
int status_after_output(int status, int failed);

}  // namespace tutti::cli

// Export of a Trace as Chrome trace JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing. docs/profiler.md lists
// the events and their arguments.
//
// In the viewer each rank is a process (pid) whose rows (tid) are threads and, for collectives, groups. Times are
// microseconds since baseTimeNanoseconds of the wall clock.
#pragma once

#include <string>
#include <string_view>

#include "tutti/runtime/function_ref.h"
#include "tutti/runtime/trace/trace.h"

namespace tutti {

// Passes the text to `write` piece by piece.
void to_chrome_trace(const Trace& trace, FunctionRef<void(std::string_view)> write);
std::string to_chrome_trace(const Trace& trace);

// Writes the file atomically and creates its folder if necessary. EnvironmentError when it cannot be written.
void write_chrome_trace(const Trace& trace, const std::string& path);

}  // namespace tutti

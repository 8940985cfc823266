// A Trace as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open. docs/profiler.md lists the
// events and their arguments.
//
// A process of the viewer is a rank (pid), its rows (tid) are threads and, for collectives, groups. Times are
// microseconds since baseTimeNanoseconds of the wall clock.
#pragma once

#include <string>
#include <string_view>

#include "tutti/runtime/function_ref.h"
#include "tutti/runtime/trace/trace.h"

namespace tutti {

// Passes the text on piece by piece.
void to_chrome_trace(const Trace& trace, FunctionRef<void(std::string_view)> write);
std::string to_chrome_trace(const Trace& trace);

// Written under a temporary name, then renamed. Makes the folder. EnvironmentError when it cannot be written.
void write_chrome_trace(const Trace& trace, const std::string& path);

// `text` between quotes, with escapes; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace tutti

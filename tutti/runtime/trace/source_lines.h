// Source lines of the user's program, for traces, dumps and errors of captured code.
//
// Lines come from the line tables of the program (-g1 or more) and of the libraries it is linked with. Without them, as
// in a stripped binary, no lines are known, and only module path and op are reported.
#pragma once

#include <array>
#include <string>

namespace tutti {

// Return addresses, innermost first. Cheap to record (about a microsecond), expensive to resolve.
struct CallSite {
  std::array<void*, 32> frames{};
  int count = 0;
};

// The call site of the caller.
CallSite call_site() noexcept;

// "qwen3.cpp:149 (block_forward)": the innermost line outside Tutti's own libraries (ops, autograd, ...) and the
// system's headers; "" when no line is known. May be called by any thread; each address is looked up once per process.
std::string user_line(const CallSite& site);

}  // namespace tutti

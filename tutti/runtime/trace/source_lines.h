// Which line of the user's program called: for traces, dumps and errors of code that was captured.
//
// Lines come from the line tables of the program (-g1 or more) and of the libraries it is linked with. Without them, as in
// a stripped binary, there is no line, and what is left is the module path and the op.
#pragma once

#include <array>
#include <string>

namespace tutti {

// Return addresses, innermost first. Cheap to take (about a microsecond), costly to read.
struct CallSite {
  std::array<void*, 32> frames{};
  int count = 0;
};

// Of the caller.
CallSite call_site() noexcept;

// "qwen3.cpp:149 (block_forward)": the innermost line outside of the rooms of Tutti that programs call (ops, autograd, ...)
// and of the system's headers; "" when no line is known. Any thread; an address is looked up once per process.
std::string user_line(const CallSite& site);

}  // namespace tutti

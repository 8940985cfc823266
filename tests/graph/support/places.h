// The places that errors of compiled functions name.
#pragma once

#include <string>

namespace tutti::graph_test {

// The text as an eager run throws it, of "floordiv at program.cpp:3 (f): ..." and "... [gather at program.cpp:3 (f)]".
std::string without_place(const std::string& text);

}  // namespace tutti::graph_test

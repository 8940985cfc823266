// Describes how the plain arguments of two calls differ.
#pragma once

#include <string>
#include <string_view>

namespace tutti::graph {

// Describes the difference between two encodings (Leaves::plain): "plain value 2 is 7, was 3", where numbers, flags,
// enums and strings are counted in the order of the arguments, or the first place where the structure differs.
std::string plain_difference(std::string_view now, std::string_view then);

}  // namespace tutti::graph

// What of plain arguments differs between two calls, in words.
#pragma once

#include <string>
#include <string_view>

namespace tutti::graph {

// Of Leaves::plain, which differ: "plain value 2 is 7, was 3", counted through numbers, flags, enums and texts in the order of
// the arguments; or the first place where their structure differs.
std::string plain_difference(std::string_view now, std::string_view then);

}  // namespace tutti::graph

// Random programs, eager against compiled, bit for bit: what they return and what they write into their arguments.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::graph_test {

// "" when programs [first, first + count) agree; else the first that does not, made as short as it can be.
std::string first_difference(uint64_t first, uint64_t count);

}  // namespace tutti::graph_test

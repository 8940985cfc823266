// Random programs that hold some of their tensors, which others replace between the calls.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/graph/compiled.h"

namespace tutti::graph_test {

// "" when programs [first, first + count) agree, eager and compiled, in each of several calls: results, arguments and
// what they hold, bit for bit; else the first that does not, made as short as it can be. Between calls held tensors are
// assigned, swapped, moved, become other tensors of other shapes and dtypes, or are written in place, while others own
// the old ones or nobody does. With Look::every_call also a list grows where it lies, and a pointer leads elsewhere.
// compiles: grows by the times that a function was traced.
std::string first_difference_when_held_are_replaced(uint64_t first, uint64_t count, CompileOptions options,
                                                    int64_t* compiles = nullptr);

}  // namespace tutti::graph_test

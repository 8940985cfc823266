// Random programs, eager against compiled, bit for bit: what they return and what they write into their arguments.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::graph_test {

// "" when programs [first, first + count) agree; else the first that does not, made as short as it can be.
// Those that fail must do so with the same error, of the same op, and leave the same bits in their arguments.
// members: grows by the calls that were made from what was traced for other sizes; failures: by those that failed.
std::string first_difference(uint64_t first, uint64_t count, int64_t* members = nullptr, int64_t* failures = nullptr);

// The same for programs that read elements on the way, which run in segments, and for the gradients of what they
// return. continuations: grows by the segments that followed a read.
std::string first_difference_in_segments(uint64_t first, uint64_t count, int64_t* continuations);

// The same for the gradients of the sum of squares of what the programs return, with
// CompileOptions::activation_memory_budget, the backward inside of the compiled function and of its result. Programs
// whose eager backward is an error are left out.
std::string first_gradient_difference(uint64_t first, uint64_t count, double budget);

// The same for the gradients of one of several results, the others unused: bits, and which gradients are undefined.
std::string first_partial_difference(uint64_t first, uint64_t count);

}  // namespace tutti::graph_test

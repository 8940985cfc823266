// Random programs on meshes, beside the same programs on plain tensors: views and writes through them, empty dims, mesh
// dims of one rank, near-equal calls in sequence, compiled functions that rank threads share.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::dist {

struct ProgramCounts {
  int64_t programs = 0, calls = 0, writes = 0,
          refused = 0;  // refused: calls that a distributed tensor does not have, and says so
};

// Runs the programs of `count` seeds from `first` on, each on one of the meshes. After each call every rank compares
// its part of every tensor that lives with what it has of the plain one, bit by bit, replicas included. The first
// program with a difference, as text; "": none.
std::string first_difference_on_meshes(uint64_t first, int64_t count, ProgramCounts* counts = nullptr);

}  // namespace tutti::dist

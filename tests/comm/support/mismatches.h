// Calls of 3 ranks that do not fit together, for any transport.
#pragma once

#include <functional>
#include <iosfwd>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

inline constexpr int kMismatchRanks = 3;

// One rank's side of a mismatch: its tensors, and its call.
struct Attempt {
  std::vector<Tensor> tensors;
  std::function<void(Tensors)> make;
};
struct Mismatch {
  const char* name;
  const char* field;  // that the message names
  std::function<Attempt(ProcessGroup&, bool odd)> attempt;
};
const std::vector<Mismatch>& mismatches();
void PrintTo(const Mismatch& mismatch, std::ostream* out);

// Collective over 3 ranks, several times: an error on all of them that names two ranks and the field, no byte written,
// and a group that goes on. Throws what goes wrong.
void check_mismatch(ProcessGroup& group, const Mismatch& mismatch);

}  // namespace tutti::comm

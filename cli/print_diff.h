// Prints the comparison of two runs for `tutti diff` and `tutti replay`, and returns the exit status for it.
#pragma once

#include <functional>

#include "tutti/train/run_diff.h"

namespace tutti::cli {

// The exit status for everything that is no answer, wrong usage included: `git bisect run` takes it for "cannot be
// tested".
constexpr int kCannotTell = 125;

// Prints what `compare` finds, as text or as one JSON object. Returns 0 for the same bits, 1 for a difference, and
// kCannotTell after telling the error when `compare` throws.
int tell_difference(const std::function<train::RunDiff()>& compare, bool json);

}  // namespace tutti::cli

// Finding the fastest of a few candidates by running them.
#pragma once

#include <cstddef>

#include "tutti/codegen/choice/options.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::codegen::choice {

// The index of the fastest of `candidates` >= 1, by the median of options.samples calls of run_us(index), which runs a
// candidate once and returns its microseconds; infinity: it cannot run. Candidate 0 is what is taken when in doubt:
// another one must be at least 3 % faster, so that noise does not choose.
//
// Every candidate runs once untimed (kernels are compiled, pages touched). Then they take turns in an order drawn from
// options.seed, so that a drift of the clock meets them all; one that is twice as slow as the best drops out. When
// options.budget_ms are spent the rounds end, and those that have not been timed are out. Exceptions of run_us pass
// through.
size_t fastest(size_t candidates, const ChoiceOptions& options, FunctionRef<double(size_t)> run_us);

}  // namespace tutti::codegen::choice

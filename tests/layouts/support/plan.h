// The cost of a layout for a rank, from sizes alone.
#pragma once

#include <vector>

#include "tests/layouts/support/parameters.h"
#include "tests/layouts/support/place.h"

namespace tutti::layouts {

// Matrix products and attention, forward and backward, of the whole run. Experts at an even load.
double planned_flops(const ModelConfig& config, const RunConfig& run, const Place& place,
                     const std::vector<ParameterSpec>& held);
// Bytes this rank sends in the whole run; experts at an even load.
double planned_wire_bytes(const ModelConfig& config, const RunConfig& run, const Place& place,
                          const std::vector<ParameterSpec>& held);

}  // namespace tutti::layouts

// Experts under the names of published models whose layers hold the weights of all of them in two tensors.
//
//   ....experts.gate_up_proj [E, 2F, D]   holds w1 in its first F rows of each expert and w3 in the others
//   ....experts.down_proj    [E, D, F]    is w2
#pragma once

#include <string>
#include <string_view>

#include "tutti/io/model_file.h"

namespace tutti::models {

inline constexpr std::string_view kStackedGateUp = ".experts.gate_up_proj", kStackedDown = ".experts.down_proj";

// The file with w1, w2 and w3 in their place, and for their routers biases of zeros. Other tensors stay as they are.
// UsageError, naming file and tensor, for one that has no two halves.
ModelFile split_stacked_experts(const ModelFile& file);

}  // namespace tutti::models

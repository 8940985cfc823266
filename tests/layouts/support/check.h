// The check of every layout row: the bits of one rank, and work that falls with the degree.
#pragma once

#include "tests/layouts/support/record.h"

namespace tutti::layouts {

// The largest share of the one-rank run that a rank of the layout may take.
struct Shares {
  double flops = 1, parameters = 1;
  double parameters_at_peak = 2;  // gathered ones included
};

enum class Model { dense, moe };

// Trains on one rank and on the layout, in f32 and in bf16 with f32 weights, with ranks as threads and in bf16 also as
// processes: losses, gradient norms, gradients and weights must be equal in every bit. Prints operations, bytes by
// category and bytes on the wire per rank beside their plan; operations and parameter bytes of each rank must stay
// below `shares` of one rank.
void check_layout(Model model, const Layout& layout, const Shares& shares);
void check_layout(ModelConfig config, const RunConfig& run, const Layout& layout, const Shares& shares);

// Says where the layout over `transport` differs from the record of one rank; "" when nowhere.
std::string differences(const std::string& transport, const RankRecord& one, const ModelConfig& config,
                        const RunConfig& run, const Layout& layout, const Shares& shares);

}  // namespace tutti::layouts

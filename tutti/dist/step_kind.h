// The kinds of steps that bring a tensor from one layout into another.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::dist {

enum class StepKind : uint8_t {
  cut,             // each rank keeps some of what it has: no communication
  gather,          // an even all_gather along one axis
  exchange,        // each rank sends others what they lack: all_to_all_v, without padding
  all_reduce,      // over one or more axes
  reduce_scatter,  // over one axis
  fill,            // Replicate to Partial: all but the first rank hold the identity
};
// Those that communicate.
inline constexpr std::array<StepKind, 4> kCollectiveSteps = {StepKind::gather, StepKind::exchange, StepKind::all_reduce,
                                                             StepKind::reduce_scatter};
inline constexpr std::array<std::string_view, 6> kStepNames = {"cut",        "gather",         "exchange",
                                                               "all_reduce", "reduce_scatter", "fill"};
constexpr std::string_view name_of(StepKind kind) { return kStepNames[static_cast<size_t>(kind)]; }

}  // namespace tutti::dist

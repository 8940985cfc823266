// Runs of the tiny model on four ranks, of which some are killed at random moments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::test {

struct LossReport {
  std::string difference;  // from the run that loses nobody; "" when there is none
  std::string counts;      // what was done, how often, and the time lost
};

enum class LossLayout { replicas, shards };

// Loses ranks of `count` runs, of replicas (DP4) or of shards (FSDP4): one rank, two one after the other, two at once,
// or three of the four; with or without replacements; eager or compiled; f32 or bf16; saved in the background or not;
// with experts or without. Each run must end well, with the tensors, losses, validations and text of the run that loses
// nobody. Equal seeds choose equal moments, as far as the machine keeps time.
LossReport lose_ranks(LossLayout layout, uint64_t seed, int count);

}  // namespace tutti::test

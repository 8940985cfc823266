// [numerics]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> numerics_keys() {
  return {
      {TUTTI_KEY(numerics, std::string, mode, "strict"),
       .doc = "strict: same bits on any layout; fast: large matrix products may use a library with its own order of "
              "summation",
       .unit = "", .rule = one_of({"strict", "fast"}), .resuming = Resuming::fixed},
      {TUTTI_KEY(numerics, std::string, changed, "refuse"),
       .doc = "what to do when a resumed run was computed with another numerics.version: refuse, or continue with "
              "different bits",
       .unit = "", .rule = one_of({"refuse", "continue"})},
      {TUTTI_KEY(numerics, int64_t, virtual_shards, 8),
       .doc = "number of parts in which the global batch is computed; at least the number of ranks", .unit = "shards",
       .rule = {.min = 1, .max = 4096, .power_of_two = true}, .resuming = Resuming::fixed},
      {TUTTI_KEY(numerics, int64_t, token_grain, 128),
       .doc = "number of positions that form one leaf of every reduction over tokens", .unit = "tokens",
       .rule = between(1, 1 << 20), .resuming = Resuming::fixed},
  };
}

}  // namespace

TUTTI_SECTION(numerics, NumericsConfig, 3) = {
    .name = "numerics",
    .doc = "What the bits of the results may depend on.",
    .keys = numerics_keys,
};

}  // namespace tutti::train

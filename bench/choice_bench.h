// `tutti bench choice`: what it costs to choose among 390,000 candidates, the first time and again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct ChoiceTiming {
  std::string
      mode;  // plain: one bucket, one dear predicate; indexed: buckets, four predicates from cheapest to most expensive
  std::string call;                           // first or second
  int64_t candidates, predicate_calls, left;  // predicate calls of this call; candidates that can serve it
  Timing time;
};

struct ChoiceResult {
  std::vector<ChoiceTiming> timings;
  bool verified;  // both modes leave and choose the same, plain calls its predicate once per candidate, and no second
                  // call one
};

// Made-up kernels of 13 mixes of dtypes, 2 layouts and 15,000 tilings each; the call is a bf16 linear layer with a
// bias.
ChoiceResult time_choice();

}  // namespace tutti::bench

// The loads of the experts of one layer in one step, as metrics.jsonl keeps them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {
class JsonValue;
}

namespace tutti::train {

struct ExpertLoad {
  int64_t layer = 0;                 // its place among the layers of experts
  std::vector<int64_t> tokens;       // per expert, of all virtual shards
  float bias_min = 0, bias_max = 0;  // of the router, before the step
};

// The largest number of tokens of an expert over the mean: 1 when all are equal. 0 without tokens.
double max_over_mean(const ExpertLoad& load);
// The entropy of the shares over that of equal ones: 1 when all are equal, 0 when one expert takes all.
double entropy_of(const ExpertLoad& load);
// How many experts have no token.
int64_t starved_in(const ExpertLoad& load);

// {"layer":0,"tokens":[...],"max_over_mean":1.5,"entropy":0.97,"bias_min":0,"bias_max":0,"starved":0}
std::string to_json(const ExpertLoad& load);
// UsageError, naming the place, for another value.
ExpertLoad expert_load_in(const JsonValue& json);

}  // namespace tutti::train

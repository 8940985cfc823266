// Why an op on distributed tensors is computed the way it is.
#pragma once

#include <string>
#include <vector>

#include "tutti/dist/op_plan.h"

namespace tutti::dist {

// A question about a call: what `tutti explain sharding` asks.
struct ShardingQuestion {
  std::string op;
  std::vector<int64_t> mesh;
  std::vector<std::string> inputs;  // see spec_from_text()
  std::string attrs = {};           // as Attrs::to_string() writes them; "": those of the op's first sample
  std::string transport = "shm";
  std::string costs = {};  // a file of measured costs; "": those of the table
  bool strict = true;
};
// UsageError, saying which part of the question is wrong.
std::string explain_sharding(const ShardingQuestion& question);

// The rule, the rows that were chosen and what they move, step by step, then what else was possible with its price, and
// what was not, with the reason. Nothing is computed; tensors need no memory.
std::string explain_sharding(const OpCall& call, const std::vector<const DTensorSpec*>& inputs,
                             const CostModel& cost = {}, bool strict = true);

// A spec on a mesh of no ranks, for questions: "[4096,1024]@[S(0),R]", with a dtype in front or f32. UsageError naming
// what is wrong.
const DTensorSpec& spec_from_text(std::string_view text, const std::vector<int64_t>& mesh_shape);

}  // namespace tutti::dist

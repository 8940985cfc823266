// How an op is computed on distributed tensors: which row of its sharding rule each mesh dim takes, where the inputs go
// for it, and what comes out. Rows are combined, checked and priced here; the stage (stage.cpp) runs what was chosen.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/sharding_rule.h"
#include "tutti/dist/redistribute.h"

namespace tutti::dist {

// One choice of rows, one per mesh dim.
struct Candidate {
  std::vector<const ShardingRow*> rows;
  std::vector<const DTensorSpec*> inputs, outputs;
  std::string refusal;  // why it cannot be taken; "": it can
  bool in_f32 = false;  // a sum of terms that the local calls return in f32
  double cost = 0, bytes = 0;
  int collectives = 0;
  int moved = 0;             // inputs that change their layout
  int renamed = 0;           // inputs that stay as they are under other placements than those of the rows
  bool writes_back = false;  // terms that are written in place are added first, and what is written becomes terms again
  int64_t shards = 0;        // parts of the first output
  // "shard m", "shard k, replicate".
  std::string name() const;
};

// Everything that the choice looked at, for explanations.
struct Candidates {
  std::string rule;
  std::vector<ShardingRow> rows;
  std::vector<Candidate> all;
  int chosen = -1;  // -1: none is legal
};

struct LayoutQuery {
  const OpCall& call;                      // tensors of the whole sizes
  std::vector<const DTensorSpec*> inputs;  // as they are
  std::vector<OutputMeta> outputs;
  bool strict = true;                  // exact rows, and sums on borders of their tree, only
  std::vector<uint64_t> symbols = {};  // per input and output the dims, as bits, whose sizes are symbols of a trace: at
                                       // up to twice the price, those are not cut
  const DTensorSpec* wanted = nullptr;  // of output 0, where somebody needs it so; null: nobody says
  CostModel cost = {};
};

// From now on the rule of calls of `op` is what `rule` returns, in the notation of docs/sharding_rules.md; null: the
// op's own again. For the process. UsageError from those calls where the text is no rule.
using ShardingFunction = std::function<std::string(const OpCall&)>;
void register_sharding(const OpDef& op, ShardingFunction rule);
// Changes with every register_sharding(): plans made by other rules hold no longer.
uint64_t sharding_rules_version();
// Whether the op has a rule, of its own or registered.
bool has_sharding(const OpDef& op);
// The rule of a call; that of an op that has none keeps all of its tensors whole.
std::string sharding_of(const OpCall& call);

// All combinations of rows with the one to take: the cheapest; of equally cheap ones that with the fewest bytes,
// collectives, moved inputs, renamed inputs, dims cut whose sizes are symbols, a first output placed as it is wanted
// or, where nobody says, the most parts of it, and the first rows. Inputs must be of one mesh.
Candidates choose_layout(const LayoutQuery& query);

// The plan of a rank for a call, remembered by the specs of its inputs.
struct OpPlan {
  std::vector<const DTensorSpec*> inputs, outputs;
  bool moves = false;  // some input changes its layout
  bool in_f32 = false;
  bool writes_back = false;
  bool has_box = false;
  LocalBox box;  // the part of output 0, for ops whose attrs hold sizes
  // A row by a range of index values: which input holds them, that range, how many values there are, and the dims of
  // the index in output 0.
  int masked_input = -1;
  Range range;
  int64_t index_values = 0;
  std::vector<int> index_dims;
};
OpPlan plan_op(const LayoutQuery& query, const Candidates& candidates, const DeviceMesh& mesh);

}  // namespace tutti::dist

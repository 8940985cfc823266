// ControlBody: the contents of a control flow node, which are the graphs it runs, when it runs them, and how they get
// their memory.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

struct ControlBody {
  enum class Kind : uint8_t {
    check,   // input 0: booleans that must all be true, or else `text` is thrown
    choose,  // input 0: a boolean (part 0 when true, else part 1) or the number of the part; outputs: the part's
             // results
    repeat,  // inputs 0 to carried - 1 go round: part 1 gives the next ones as long as part 0 gives true
    walk,    // `steps` rounds of part 0; inputs behind the carried ones are walked along dim 0, results behind them
             // stacked
  };
  // A given buffer of a part begins `first_byte` bytes from the first element of an input of the node, or of what
  // stands in the input's place in this round.
  struct Feed {
    int32_t input;
    int64_t first_byte;
  };
  // Runs by itself, maybe never. Its given buffers are read, never written; buffer i of them has source i, a place in
  // feeds.
  struct Part {
    std::string name;  // "true branch of cond"
    Graph graph;
    std::vector<Feed> feeds;
  };

  Kind kind;
  std::string text;  // what the user called, or the message of a check
  std::vector<Part> parts = {};
  int32_t carried = 0, walked = 0;
  int64_t steps = 0;
  bool ordered = false;  // a part, or the check, does more than give results
};

// A node over `body`: its op is a name and nothing else.
Node control_node(std::shared_ptr<const ControlBody> body);
// The parts, for people.
std::string to_string(const ControlBody& body);

}  // namespace tutti::graph

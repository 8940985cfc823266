// Steps: what an executable runs, one after another.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tutti/plan/batch_step.h"
#include "tutti/plan/block_step.h"

namespace tutti::graph {

class ControlStep;

// One op, called by itself.
struct CallStep {
  int32_t node;  // of the graph
  const OpDef* op;
  Attrs attrs;
  std::vector<Value> inputs, outputs;
  std::vector<bool> copy_first;  // per input: the op writes memory that this input reads elsewhere; empty: none
  bool check_only = false;       // looks at the operands, as an eager call would before it runs
  Origin origin = {};
  std::shared_ptr<const ControlStep> control = nullptr;  // what runs in the place of the op's kernel
  std::optional<BlockStep> prologue = {},
                           epilogue = {};  // what makes the blocks of inputs[0], and runs on those of the output
  const TraceKernel* trace = nullptr;      // where the call comes from, when it has one of them
  std::vector<int32_t> keys = {};          // slots of the random keys that each call has anew
};

using Step = std::variant<KernelStep, BatchStep, CallStep>;

// A readable list with one line per step.
std::string to_string(std::span<const Step> steps);

}  // namespace tutti::graph

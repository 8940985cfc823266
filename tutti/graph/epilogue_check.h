// Looks whether a call with an epilogue gives the bits that the call and then the kernel give. For debugging:
// TUTTI_CHECK_EPILOGUES=1, or CompileOptions::check_epilogues.
#pragma once

#include <map>
#include <span>

#include "tutti/graph/block_step.h"

namespace tutti::graph {

class EpilogueCheck {
 public:
  // Runs the call, then the kernel, on copies of what the kernel writes. `output` is that of the call; bases: where the
  // buffers of the graph begin. All must outlive the check.
  EpilogueCheck(const BlockStep& step, const OpCall& call, const Value& output, const Graph& graph, std::span<char* const> bases);
  // After the step has run: InternalError naming the first element that differs.
  void finish(std::span<char* const> bases) const;

  static bool is_on();

 private:
  void compare(const OperandPlace& place, const NestOperand& operand, const std::string& what, const char* actual) const;

  const BlockStep& step_;
  const OpCall& call_;
  const Value& output_;
  std::map<int32_t, Tensor> copies_;  // per buffer, its bytes
};

}  // namespace tutti::graph

// Checks that a call with a prologue or epilogue gives the same bits as running the kernels one after another. For
// debugging: TUTTI_CHECK_EPILOGUES=1, or CompileOptions::check_epilogues.
#pragma once

#include <map>
#include <span>

#include "tutti/plan/block_step.h"

namespace tutti::graph {

class BlockCheck {
 public:
  // Runs the prologue, the call and the epilogue (null: there is none) on copies of what they write. inputs, outputs:
  // of the call; bases: where the buffers of the graph begin. All must outlive the check.
  BlockCheck(const BlockStep* prologue, const BlockStep* epilogue, const OpCall& call, std::span<const Value> inputs,
             std::span<const Value> outputs, const Graph& graph, std::span<char* const> bases);
  // After they have run on blocks: InternalError naming the first element that differs.
  void finish(std::span<char* const> bases) const;

  static bool is_on();

 private:
  void copy(int32_t buffer, bool has_memory);
  Tensor tensor_of(const Value& v) const;
  // The kernel over all of its nest, on the copies where there are some.
  void run(const KernelStep& kernel) const;
  void compare(const OperandPlace& place, const LoopNest& nest, const NestOperand& operand, const std::string& what,
               const char* actual) const;
  std::string names() const;

  const BlockStep* const prologue_;
  const BlockStep* const epilogue_;
  const OpCall& call_;
  const Value& output_;
  const Graph& graph_;
  const std::span<char* const> bases_;
  std::map<int32_t, Tensor> copies_;  // per buffer, its bytes
};

}  // namespace tutti::graph

// The recipes of a group, written into one kernel: its operands, its specification, its plan before the loops are laid
// out.
#pragma once

#include "tutti/plan/kernel_step.h"

namespace tutti::graph {

class KernelWriter {
 public:
  // escapes: per buffer, whether anything outside of the group reads it; what does not is not stored.
  KernelWriter(const Group& group, const Graph& graph, const std::vector<bool>& escapes);

  struct Output {
    Access access;
    bool per_row;
    Expr value;
  };
  KernelBody body;
  std::vector<Access> inputs;
  std::vector<Output> outputs;
  std::vector<codegen::ParamValue> params;
  std::vector<KeyedParams> keyed;
  std::string ops;
  int32_t reporter = -1;

  // The group's space with the operands of the kernel, before its loops are laid out.
  LoopPlan plan() const;
  // Fills in what follows from the step's plan, once its loops are.
  void finish(KernelStep& step);

 private:
  struct Known {
    Access access;
    Expr value;
  };
  Expr element(const Access& access);
  void write(const Node& node);
  // Stores what the reporter gives, when no output is computed from it: only what is stored is computed.
  void keep_report();
  bool is_used(int32_t expr) const;

  const Group& group_;
  const Graph& graph_;
  const std::vector<bool>& escapes_;
  std::vector<Known> known_;
  std::vector<Output> reported_;  // what the reporter gives
};

}  // namespace tutti::graph

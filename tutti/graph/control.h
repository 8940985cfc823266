// Control flow that depends on data: cond, switch_, while_loop, scan, and check.
//
//   const std::vector<Tensor> y = cond(gt(sum(x), 0.0), [](auto x) { return exp(x[0]); }, [](auto x) { return
//   neg(x[0]); }, {x});
//
// Called eagerly, these functions read the predicate and run the selected branch. In a compiled function each becomes
// one node, which reads the predicate at every call; each branch or loop body is compiled separately and runs only when
// it is selected. Results and gradients have the same bits either way.
//
// Branches and bodies may read their operands and captured tensors, whose current values are used at every call. They
// must not write either in place; a trace refuses that. Results never share memory with an operand.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// A function of tensors: any callable that takes a span of tensors and returns a vector of tensors or one Tensor.
class TensorFn {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, TensorFn> && std::is_invocable_v<F&, std::span<const Tensor>>)
  TensorFn(F f)  // NOLINT: a lambda is one
      : fn_([f = std::move(f)](std::span<const Tensor> x) mutable -> std::vector<Tensor> {
          if constexpr (std::is_same_v<std::decay_t<std::invoke_result_t<F&, std::span<const Tensor>>>, Tensor>)
            return {f(x)};
          else return f(x);
        }) {}
  std::vector<Tensor> operator()(std::span<const Tensor> x) const { return fn_(x); }

 private:
  std::function<std::vector<Tensor>(std::span<const Tensor>)> fn_;
};

// if_true(operands) if `pred`, a 0-dim boolean, is true, else if_false(operands). In a trace both branches must return
// the same number of results with the same dtypes and shapes (else CaptureError TUTTI-CAPTURE-026).
std::vector<Tensor> cond(const Tensor& pred, const TensorFn& if_true, const TensorFn& if_false,
                         const std::vector<Tensor>& operands = {});

// branches[index](operands); `index` is a 0-dim integer. UsageError when there is no such branch.
std::vector<Tensor> switch_(const Tensor& index, const std::vector<TensorFn>& branches,
                            const std::vector<Tensor>& operands = {});

// Repeats carried = body(carried) while again(carried), a 0-dim boolean, is true, and returns the final carried
// tensors. The body must preserve their number, dtypes and shapes (else UsageError). In a trace the loop has no
// gradient (TUTTI-CAPTURE-028).
std::vector<Tensor> while_loop(const TensorFn& again, const TensorFn& body, const std::vector<Tensor>& carried);

// One step of a scan.
struct ScanStep {
  std::vector<Tensor> carried;  // passed to the next step
  std::vector<Tensor> outputs;  // stacked over the steps
};
using ScanFn = std::function<ScanStep(std::span<const Tensor> carried, std::span<const Tensor> elements)>;

// {carried, outputs} = f(carried, element t of each of xs along dim 0) for t = 0, 1, ...; returns the final carried
// tensors and the outputs stacked along a new dim 0. A trace unrolls up to 16 steps; a longer scan becomes a loop,
// which has no gradient (TUTTI-CAPTURE-028). Shapes: all xs have the same size in dim 0; f preserves number, dtypes and
// shapes of the carried tensors.
ScanStep scan(const ScanFn& f, const std::vector<Tensor>& init, const std::vector<Tensor>& xs);

// Throws UsageError with `message` unless every element of the boolean tensor `condition` is true. In a compiled
// function the check runs at every call, in program order with other checks and before later writes to the caller's
// memory; inside a branch, only when that branch runs.
void check(const Tensor& condition, const std::string& message);

}  // namespace tutti

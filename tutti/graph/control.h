// Control flow that depends on data: cond, switch_, while_loop, scan, and check.
//
//   const std::vector<Tensor> y = cond(gt(sum(x), 0.0), [](auto x) { return exp(x[0]); }, [](auto x) { return neg(x[0]); }, {x});
//
// Called directly, these read the predicate and run what it says. While a function is being compiled they become one node,
// which reads the predicate at every call: each branch or loop body is compiled by itself and runs only when it is chosen.
// Results and gradients have the same bits either way.
//
// What branches and bodies may do: read their operands, and tensors that they hold (read at every call). They may not write
// either in place; a trace refuses it. Results are values of their own and never share memory with an operand.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// A function of tensors, given as anything that can be called with a span of them and gives a vector or one Tensor.
class TensorFn {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, TensorFn> && std::is_invocable_v<F&, std::span<const Tensor>>)
  TensorFn(F f)  // NOLINT: a lambda is one
      : fn_([f = std::move(f)](std::span<const Tensor> x) mutable -> std::vector<Tensor> {
          if constexpr (std::is_same_v<std::decay_t<std::invoke_result_t<F&, std::span<const Tensor>>>, Tensor>) return {f(x)};
          else return f(x);
        }) {}
  std::vector<Tensor> operator()(std::span<const Tensor> x) const { return fn_(x); }

 private:
  std::function<std::vector<Tensor>(std::span<const Tensor>)> fn_;
};

// if_true(operands) where `pred`, a boolean without dims, is true, else if_false(operands). In a trace both must give
// results of the same number, dtypes and shapes (CaptureError TUTTI-CAPTURE-026 otherwise).
std::vector<Tensor> cond(const Tensor& pred, const TensorFn& if_true, const TensorFn& if_false, const std::vector<Tensor>& operands = {});

// branches[index](operands); `index` is an integer without dims. UsageError when there is no such branch.
std::vector<Tensor> switch_(const Tensor& index, const std::vector<TensorFn>& branches, const std::vector<Tensor>& operands = {});

// carried = body(carried) as long as again(carried), a boolean without dims, is true; gives what is carried then. The body
// keeps number, dtypes and shapes (UsageError otherwise). In a trace it has no gradient (TUTTI-CAPTURE-028).
std::vector<Tensor> while_loop(const TensorFn& again, const TensorFn& body, const std::vector<Tensor>& carried);

// One step of a scan.
struct ScanStep {
  std::vector<Tensor> carried;  // for the next step
  std::vector<Tensor> outputs;  // stacked over the steps
};
using ScanFn = std::function<ScanStep(std::span<const Tensor> carried, std::span<const Tensor> elements)>;

// {carried, outputs} = f(carried, element t of each of xs along dim 0) for t = 0, 1, ...; gives what is carried last, and
// the outputs stacked along a new dim 0. A trace writes up to 16 steps out one by one; a longer scan is a loop there, which has
// no gradient (TUTTI-CAPTURE-028).
// Shapes: xs agree in dim 0; f keeps number, dtypes and shapes of what is carried.
ScanStep scan(const ScanFn& f, const std::vector<Tensor>& init, const std::vector<Tensor>& xs);

// Throws UsageError with `message` unless every element of the boolean tensor `condition` is true. In a trace it becomes a
// node that does so at every call, in its place among other checks, before later writes to memory of the caller; in a
// branch, only when the branch runs.
void check(const Tensor& condition, const std::string& message);

}  // namespace tutti

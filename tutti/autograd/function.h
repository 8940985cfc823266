// autograd::Function: a differentiable function whose gradient the user writes.
//
//   const autograd::Function square("square",
//       [](autograd::FunctionContext& context, std::span<const Tensor> in) -> std::vector<Tensor> {
//         context.save(in);
//         return {mul(in[0], in[0])};
//       },
//       [](const autograd::FunctionContext& context, std::span<const Tensor> grads) -> std::vector<Tensor> {
//         return {mul(grads[0], mul(context.saved()[0], 2.0))};
//       });
//   const Tensor y = square(x);
//
// Both closures call ops, so the function runs in compiled functions, and its backward can be differentiated in turn
// where it is written with ops that have gradients. A Function is immutable; any thread may call it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/autograd/tape.h"

namespace tutti::autograd {

// State that one call of a Function saves for its backward.
class FunctionContext {
 public:
  // Keeps inputs, outputs or intermediate results. Writing one in place before the backward is an error that names the
  // function.
  void save(std::span<const Tensor> tensors);
  void save(std::initializer_list<Tensor> tensors) { save(std::span<const Tensor>(tensors.begin(), tensors.size())); }
  // The tensors of all calls of save(), in order.
  const std::vector<Tensor>& saved() const { return saved_; }
  // Results that get no history, although they are floats, such as a mask. UsageError from the call when it is no
  // result.
  void mark_non_differentiable(const Tensor& result) { constant_.push_back(result); }
  // In the backward: whether the gradient of input `i` is wanted.
  bool needs(size_t i) const { return i < needs_.size() && needs_[i]; }

 private:
  friend class Function;
  friend struct FunctionNode;
  std::vector<Tensor> saved_, constant_;
  std::vector<bool> needs_;
};

class Function {
 public:
  // Runs without recording; gets the inputs and returns the results.
  using Forward = std::function<std::vector<Tensor>(FunctionContext& context, std::span<const Tensor> inputs)>;
  // Gets the cotangents of the results (undefined: zero) and returns one gradient per input, of the sizes of the input;
  // undefined means zero.
  using Backward = std::function<std::vector<Tensor>(const FunctionContext& context, std::span<const Tensor> grads)>;
  // The name stands in errors and traces.
  Function(std::string name, Forward forward, Backward backward);

  std::vector<Tensor> apply(std::span<const Tensor> inputs) const;
  // A call of a function with one result. UsageError when it has another number.
  template <class... T>
  Tensor operator()(const T&... inputs) const {
    const Tensor list[] = {inputs...};
    return one_result(apply(list));
  }

  struct Definition {
    std::string name;
    Forward forward;
    Backward backward;
  };

 private:
  Tensor one_result(std::vector<Tensor> results) const;
  std::shared_ptr<const Definition> definition_;
};

}  // namespace tutti::autograd

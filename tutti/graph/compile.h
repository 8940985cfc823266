// compile(): captures a function over tensors once and replays it as a small number of kernels.
//
//   auto step = tutti::compile([&](const Tensor& x, const Tensor& y) { return mean(square(sub(model(x), y))); });
//   Tensor loss = step(x, y);
//
// The first call with a new kind of arguments (dtypes, sizes, strides, plain values, ...) traces the function: it runs
// on tensors without elements, and the ops it calls are recorded. Later calls of that kind replay them. Results,
// gradients and in-place writes have the bits of an eager run.
//
// A trace sees tensor ops only. Other host code in the function (printing, counting, reading a clock) runs only while
// tracing, and a plain number that the function captures by reference keeps the value it had then: pass such numbers as
// arguments. Captured tensors are read anew at every call. When a variable, a member or an element of a vector that the
// function reads is replaced by another tensor, the function is traced again; docs/compiler.md says which changes are
// detected, and when.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "tutti/graph/compiled_function.h"
#include "tutti/tensor/handle_watch.h"

namespace tutti {

// A compiled function. Copies share the compiled code. Any number of threads may call it concurrently; ranks that are
// threads share its kernels, and each traces its own calls.
template <class Fn>
class Compiled {
 public:
  Compiled(Fn fn, CompileOptions options)
      : fn_(std::make_shared<Fn>(std::move(fn))),
        function_(std::make_shared<graph::CompiledFunction>(std::move(options), !std::is_empty_v<Fn>)) {}

  // Calls the function. Throws what `fn` throws, CaptureError when it cannot be captured, and RecompileLimit.
  template <class... Args>
  auto operator()(const Args&... args) const {
    using Result = std::decay_t<std::invoke_result_t<Fn&, const Args&...>>;
    if (graph::CompiledFunction::calls_inline()) return (*fn_)(args...);
    graph::Leaves arguments;
    graph::Flattener flatten(arguments);
    (flatten(args), ...);
    const auto trace = [&](const graph::StandIns& stand_ins,
                           std::vector<Tensor>& results) -> std::shared_ptr<const void> {
      std::optional<HandleNotes::Pause> copying(std::in_place);  // the function does not hold its arguments
      std::tuple<std::decay_t<Args>...> traced(args...);
      copying.reset();
      graph::Rebuilder rebuild(stand_ins);
      rebuild(traced);
      if constexpr (std::is_void_v<Result>) {
        std::apply(*fn_, traced);
        return nullptr;
      } else {
        auto result = std::make_shared<Result>(std::apply(*fn_, traced));
        graph::Leaves leaves;
        graph::Flattener out(leaves);
        out(*result);
        graph::refuse_returned_keys(leaves);
        results = leaves.tensors;
        if (const std::vector<Tensor> kept = graph::without_wrappers(results); !kept.empty())
          graph::Rebuilder({.tensors = kept})(*result);
        return result;
      }
    };
    const auto rerun = [&]() -> graph::Rerun {
      return [fn = fn_, held = std::tuple<std::decay_t<Args>...>(args...)](std::vector<Tensor>& results) {
        if constexpr (!std::is_void_v<Result>) {
          const Result result = std::apply(*fn, held);
          graph::Leaves leaves;
          graph::Flattener out(leaves);
          out(result);
          results = std::move(leaves.tensors);
        }
      };
    };
    const graph::CallOutcome outcome = function_->call(arguments, trace, rerun);
    if (outcome.eager) return (*fn_)(args...);
    if constexpr (!std::is_void_v<Result>)
      return graph::rebuilt(*static_cast<const Result*>(outcome.structure.get()), outcome.results);
  }

  // Both tell what the rank that asks has compiled; explain() is a readable description, with the reason for each
  // recompilation.
  CompileStatistics statistics() const { return function_->statistics(); }
  std::string explain() const { return function_->explain(); }

 private:
  std::shared_ptr<Fn> fn_;
  std::shared_ptr<graph::CompiledFunction> function_;
};

template <class Fn>
Compiled<std::decay_t<Fn>> compile(Fn&& fn, CompileOptions options = {}) {
  return {std::forward<Fn>(fn), std::move(options)};
}

}  // namespace tutti

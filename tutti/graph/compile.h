// compile(): a function over tensors, captured once and replayed as few kernels.
//
//   auto step = tutti::compile([&](const Tensor& x, const Tensor& y) { return mean(square(sub(model(x), y))); });
//   Tensor loss = step(x, y);
//
// The first call with arguments of some kind runs the function on tensors without elements and writes down the ops it
// calls; later calls of that kind replay them. Results, gradients and in-place writes have the bits of an eager run.
//
// What a trace cannot see: host code in the function (printing, counting, reading a clock) runs while tracing only; a plain
// number that the function holds by reference is taken as it was. Pass such numbers as arguments. Tensors that the
// function holds are read at every call; when a variable, a member or an element of a vector that it reads becomes another
// tensor, the function is traced again (docs/compiler.md says what is seen, and when).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "tutti/graph/compiled.h"
#include "tutti/tensor/handle_watch.h"

namespace tutti {

// A compiled function; copies share what was compiled. Any number of threads may call it at once.
template <class Fn>
class Compiled {
 public:
  Compiled(Fn fn, CompileOptions options) : fn_(std::make_shared<Fn>(std::move(fn))), core_(std::make_shared<graph::CompiledCore>(std::move(options), !std::is_empty_v<Fn>)) {}

  // Throws what `fn` throws, CaptureError when it cannot be captured, RecompileLimit.
  template <class... Args>
  auto operator()(const Args&... args) const {
    using Result = std::decay_t<std::invoke_result_t<Fn&, const Args&...>>;
    if (graph::CompiledCore::calls_inline()) return (*fn_)(args...);
    graph::Leaves arguments;
    graph::Flattener flatten(arguments);
    (flatten(args), ...);
    const auto trace = [&](const graph::StandIns& stand_ins, std::vector<Tensor>& results) -> std::shared_ptr<const void> {
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
    const graph::CompiledCore::Outcome outcome = core_->call(arguments, trace, rerun);
    if (outcome.eager) return (*fn_)(args...);
    if constexpr (!std::is_void_v<Result>) return graph::rebuilt(*static_cast<const Result*>(outcome.structure.get()), outcome.results);
  }

  CompileStatistics statistics() const { return core_->statistics(); }
  // What was compiled, and why more than once; for people.
  std::string explain() const { return core_->explain(); }

 private:
  std::shared_ptr<Fn> fn_;
  std::shared_ptr<graph::CompiledCore> core_;
};

template <class Fn>
Compiled<std::decay_t<Fn>> compile(Fn&& fn, CompileOptions options = {}) {
  return {std::forward<Fn>(fn), std::move(options)};
}

}  // namespace tutti

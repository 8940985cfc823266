// Calling modules: hooks, and children that are registered by being members.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/autograd/hooks.h"
#include "tutti/nn/module.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::nn {

// Gets the tensors among the arguments of forward, in their order, and may replace them.
using ForwardPreHook = std::function<void(const Module& module, std::vector<Tensor>& inputs)>;
// Gets the result of forward; a defined tensor that it returns takes its place. A hook that only looks may return
// nothing (void).
using ForwardHook = std::function<Tensor(const Module& module, const Tensor& output)>;

// The hooks of one module. They run in the order of their registration; the handle removes a hook.
class ForwardHooks {
 public:
  HookHandle before(ForwardPreHook hook) { return before_.add(std::move(hook)); }
  template <class Hook>
  HookHandle after(Hook hook) {
    if constexpr (!std::is_void_v<std::invoke_result_t<Hook&, const Module&, const Tensor&>>)
      return after_.add(std::move(hook));
    else
      return after_.add([hook = std::move(hook)](const Module& module, const Tensor& output) mutable {
        return hook(module, output), Tensor();
      });
  }

  bool has_before() const { return !before_.empty(); }
  bool has_after() const { return !after_.empty(); }
  void run_before(const Module& module, std::vector<Tensor>& inputs) const;
  Tensor run_after(const Module& module, Tensor output) const;

 private:
  autograd::HookList<ForwardPreHook> before_;
  autograd::HookList<ForwardHook> after_;
};

namespace detail {

[[noreturn]] void throw_result_is_no_tensor(const Module& module);

// A tensor argument is held by value, because a hook may replace it; all others are passed on as they came.
template <class Arg>
using Held = std::conditional_t<std::is_same_v<std::decay_t<Arg>, Tensor>, Tensor, Arg&&>;

template <class M, class... Args>
auto call_with_hooks(const ForwardHooks& hooks, M& module, Args&&... args) {
  std::tuple<Held<Args>...> held(std::forward<Args>(args)...);
  if (hooks.has_before()) {
    std::vector<Tensor> inputs;
    std::vector<Tensor*> places;
    std::apply(
        [&](auto&... a) {
          const auto note = [&]<class A>(A& argument) {
            if constexpr (std::is_same_v<A, Tensor>) inputs.push_back(argument), places.push_back(&argument);
          };
          (note(a), ...);
        },
        held);
    hooks.run_before(module, inputs);
    for (size_t i = 0; i < places.size(); ++i) *places[i] = inputs[i];
  }
  const auto forward = [&](auto&... a) { return module.forward(std::forward<Held<Args>>(a)...); };
  if constexpr (std::is_same_v<decltype(std::apply(forward, held)), Tensor>)
    return hooks.run_after(module, std::apply(forward, held));
  if (hooks.has_after()) throw_result_is_no_tensor(module);
  return std::apply(forward, held);
}

}  // namespace detail

// Runs module.forward(args...) under the module's name, for traces and random keys, with its hooks. It is not inlined,
// nor are calls of children: an inlined one would hide the line of the caller from traces and errors, which name lines
// by return addresses.
template <class M, class... Args>
[[gnu::noinline]] auto call(M& module, Args&&... args) {
  const std::string name = module.call_name();
  std::optional<ModuleScope> scope;
  if (!name.empty()) scope.emplace(name, std::source_location());
  const ForwardHooks* hooks = module.forward_hooks_if_any();
  if (hooks == nullptr) [[likely]]
    return module.forward(std::forward<Args>(args)...);
  return detail::call_with_hooks(*hooks, module, std::forward<Args>(args)...);
}

// A submodule as a member: it registers itself with `parent` under `name`, and is called like a function.
template <class M>
class Child {
 public:
  template <class... Args>
  Child(Module* parent, std::string name, Args&&... args) : module_(std::forward<Args>(args)...) {
    parent->register_module(std::move(name), module_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  template <class... Args>
  [[gnu::noinline]] auto operator()(Args&&... args) const {
    return call(module_, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[gnu::noinline]] auto operator()(Args&&... args) {
    return call(module_, std::forward<Args>(args)...);
  }

  M* operator->() { return &module_; }
  const M* operator->() const { return &module_; }
  M& operator*() { return module_; }
  const M& operator*() const { return module_; }

 private:
  M module_;
};

}  // namespace tutti::nn

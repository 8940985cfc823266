#include "tutti/nn/module_call.h"

#include "tutti/core/error.h"

namespace tutti::nn {

void ForwardHooks::run_before(const Module& module, std::vector<Tensor>& inputs) const {
  const size_t count = inputs.size();
  before_.for_each([&](const ForwardPreHook& hook) { hook(module, inputs); });
  TUTTI_CHECK_EQ(inputs.size(), count,
                 "a hook before '{}' left {} tensors of {}; it may replace them, but not add or remove any",
                 module.call_name(), inputs.size(), count);
}

Tensor ForwardHooks::run_after(const Module& module, Tensor output) const {
  after_.for_each([&](const ForwardHook& hook) {
    if (Tensor replaced = hook(module, output); replaced.defined()) output = std::move(replaced);
  });
  return output;
}

void detail::throw_result_is_no_tensor(const Module& module) {
  throw UsageError(
      fmt::format("a hook was registered after '{}', whose forward does not return a Tensor; register one with the "
                  "modules inside it",
                  module.call_name()));
}

}  // namespace tutti::nn

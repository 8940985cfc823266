#include "tutti/nn/input_recorder.h"

#include <algorithm>
#include <cmath>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/nn/module_call.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"

namespace tutti::nn {

InputRecorder::InputRecorder(Module& module, int64_t rows) : rows_(rows) {
  for (const NamedModule& named : module.named_modules()) {
    if (dynamic_cast<Linear*>(named.module) == nullptr) continue;
    Inputs& inputs = inputs_[named.name];
    hooks_.push_back(named.module->forward_hooks().before(
        [this, &inputs](const Module&, std::vector<Tensor>& given) { record(inputs, given.at(0)); }));
  }
}

void InputRecorder::stop() {
  for (HookHandle& hook : hooks_) hook.remove();
  hooks_.clear();
}

const InputRecorder::Inputs* InputRecorder::find(const std::string& layer) const {
  const auto found = inputs_.find(layer);
  return found == inputs_.end() || found->second.count == 0 ? nullptr : &found->second;
}

void InputRecorder::record(Inputs& inputs, const Tensor& x) const {
  TUTTI_CHECK(x.storage()->has_memory(),
              "InputRecorder: a layer is given {}, which has no values here; run the module on one rank and without "
              "compile()",
              describe(x));
  const Tensor numbers = to_contiguous(cast(detach(x), DType::f32));
  const std::span<const float> values(numbers.data<float>(), static_cast<size_t>(numbers.numel()));
  for (const float v : values) {
    if (std::isfinite(v)) inputs.least = std::min(inputs.least, v), inputs.most = std::max(inputs.most, v);
  }
  inputs.in = x.extents()[x.ndim() - 1];
  const int64_t rows = inputs.in == 0 ? 0 : numbers.numel() / inputs.in;
  inputs.count += rows;
  const auto is_finite = [](float v) { return std::isfinite(v); };
  for (int64_t i = 0; i < rows && std::ssize(inputs.kept) < rows_ * inputs.in; ++i) {
    const std::span<const float> row =
        values.subspan(static_cast<size_t>(i * inputs.in), static_cast<size_t>(inputs.in));
    if (std::all_of(row.begin(), row.end(), is_finite)) inputs.kept.insert(inputs.kept.end(), row.begin(), row.end());
  }
}

}  // namespace tutti::nn

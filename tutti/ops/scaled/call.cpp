#include "tutti/ops/scaled/call.h"

#include "tutti/ops/copy.h"
#include "tutti/ops/scaled/scales.h"

namespace tutti::scaled {
namespace {

bool is_there(const Tensor& t) { return t.numel() > 0; }

codegen::Scales scales_of(const Tensor& t) {
  if (!is_there(t)) return {};
  return {t.data<float>(), t.numel() == 1 ? 0 : t.strides()[0]};
}

}  // namespace

ScaledCall::ScaledCall(const OpCall& call, std::span<const Tensor> outputs) {
  const ScaledLinearAttrs& attrs = call.attrs.as<ScaledLinearAttrs>();
  const Tensor x = dense(call[0]);
  product = {.m = x.extents()[0],
             .k = x.extents()[1],
             .codes = call[kSharedInputs].dtype(),
             .x = x.raw_data(),
             .x_dtype = x.dtype(),
             .x_codes = attrs.x_codes,
             .x_scale = scales_of(call[1]),
             .x_zero_point = integer_of(call[2]),
             .y_dtype = attrs.dtype,
             .weights = {}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t first = kSharedInputs + i * kInputsOfWeight;
    const bool is_dense = call[first].extents()[1] <= 1 || call[first].strides()[1] == 1;
    const Tensor w = is_dense ? call[first] : dense(call[first]), bias = dense(call[first + 2]);
    weights_.push_back({.n = w.extents()[0],
                        .w = static_cast<const std::byte*>(w.raw_data()),
                        .w_stride = w.strides()[0],
                        .scale = scales_of(call[first + 1]),
                        .bias = is_there(bias) ? bias.data<float>() : nullptr,
                        .y = outputs[i].raw_data(),
                        .y_scale = number_of(call[first + 3]),
                        .y_zero_point = integer_of(call[first + 4])});
  }
  product.weights = weights_;
}

Tensor ScaledCall::dense(const Tensor& t) {
  held_.push_back(to_contiguous(t));
  return held_.back();
}

void check_scales(const OpCall& call) {
  constexpr const char* kName = "scaled_linear";  // also where several calls are merged
  const ScaledLinearAttrs& attrs = call.attrs.as<ScaledLinearAttrs>();
  check_positive(kName, call, 1, "x");
  check_within(kName, call, 2, attrs.x_codes, "x");
  const bool is_one = call.inputs.size() == kSharedInputs + kInputsOfWeight;
  for (size_t first = kSharedInputs; first < call.inputs.size(); first += kInputsOfWeight) {
    const size_t index = (first - kSharedInputs) / kInputsOfWeight;
    const std::string what = is_one ? "the result" : fmt::format("result {} of those of this x", index);
    check_positive(kName, call, first + 3, what);
    check_within(kName, call, first + 4, attrs.dtype, what);
  }
}

}  // namespace tutti::scaled

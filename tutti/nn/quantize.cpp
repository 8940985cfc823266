#include "tutti/nn/quantize.h"

#include <algorithm>
#include <cmath>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/nn/coded_operand.h"
#include "tutti/nn/input_recorder.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/weight_codes.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"

namespace tutti::nn {
namespace {

struct NamedLinear {
  std::string name;
  Linear* layer;
};

bool can_be_quantized(const Linear& layer) {
  return can_hold_codes(layer) && layer.weight.is_materialized() && !layer.weight.holds_blocks();
}

// Other modules that read a shared weight would lose it.
bool is_shared(const Module& module, const Linear& layer) {
  const std::vector<NamedParameter> aliases = module.parameter_aliases();
  return std::any_of(aliases.begin(), aliases.end(),
                     [&](const NamedParameter& alias) { return alias.parameter.is_same(layer.weight); });
}

std::vector<NamedLinear> targets_of(Module& module, const QuantizeOptions& options) {
  std::vector<NamedLinear> targets;
  for (const NamedModule& named : module.named_modules()) {
    auto* layer = dynamic_cast<Linear*>(named.module);
    if (layer == nullptr) continue;
    if (options.filter ? options.filter(named.name, *layer) : can_be_quantized(*layer) && !is_shared(module, *layer))
      targets.push_back({named.name, layer});
  }
  return targets;
}

// What x is rounded with where that is known beforehand.
AffineScale scale_of_inputs(const InputRecorder::Inputs& inputs, Quantization kind) {
  if (row_of(kind).is_fp8()) {
    const float largest = std::max(-inputs.least, inputs.most) / 448.0F;
    return {full({1}, std::isnormal(largest) ? static_cast<double>(largest) : 1.0)};
  }
  const float step = (inputs.most / 2 - inputs.least / 2) / 127.5F, scale = std::isnormal(step) ? step : 1.0F;
  const float zero_point = std::clamp(std::nearbyint(-inputs.least / scale), 0.0F, 255.0F);
  return {full({1}, static_cast<double>(scale)), full({1}, static_cast<double>(zero_point), DType::i32)};
}

double relative_error(const Tensor& found, const Tensor& exact) {
  const Tensor a = to_contiguous(cast(found, DType::f32)), b = to_contiguous(cast(exact, DType::f32));
  double of_difference = 0, of_all = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double right = static_cast<double>(b.data<float>()[i]), wrong = static_cast<double>(a.data<float>()[i]);
    of_difference += (wrong - right) * (wrong - right), of_all += right * right;
  }
  return of_difference == 0 ? 0 : std::sqrt(of_difference / of_all);
}

WeightCodes codes_of(const NamedLinear& target, const QuantizeOptions& options) {
  const QuantizationRow& row = row_of(options.kind);
  const Tensor weight = target.layer->weight.use();
  if (row.has_groups()) {
    const CodedWeight coded = coded_groups(weight, options.group, target.name);
    return {.codes = coded.codes, .scale = coded.scale, .minimum = coded.minimum};
  }
  const ScaledWeight coded = coded_rows(weight, row.codes, target.name);
  if (!row.is_static) return {.codes = coded.codes, .scale = coded.scale};
  const AffineScale x = scale_of_inputs(*options.inputs->find(target.name), options.kind);
  return {.codes = coded.codes, .scale = coded.scale, .x_scale = x.scale, .x_zero_point = x.zero_point};
}

QuantizedLayer quantize_layer(const NamedLinear& target, const QuantizeOptions& options) {
  Linear& layer = *target.layer;
  const Tensor weight = layer.weight.use();
  QuantizedLayer report{.name = target.name, .sizes = layer.weight.sizes(), .nbytes_before = weight.nbytes()};
  const WeightCodes codes = codes_of(target, options);
  const CodedOperand operand(options.kind, codes);
  report.nbytes_after = operand.nbytes();
  report.weight_error = relative_error(decoded(options.kind, codes), weight);
  const InputRecorder::Inputs* inputs = options.inputs == nullptr ? nullptr : options.inputs->find(target.name);
  if (inputs != nullptr) {
    const int64_t in = report.sizes[1];
    const Tensor x = Tensor::of<float>(inputs->kept, {std::ssize(inputs->kept) / std::max<int64_t>(in, 1), in});
    report.result_error = relative_error(operand.product(x, {}), linear(x, cast(weight, DType::f32)));
  }
  hold_codes(layer, options.kind, codes);
  return report;
}

void check(const Module& module, const std::vector<NamedLinear>& targets, const QuantizeOptions& options) {
  for (const auto& [name, layer] : targets) {
    TUTTI_CHECK(
        can_be_quantized(*layer) && !is_shared(module, *layer),
        "quantize_: '{}' cannot be quantized: its weight has no values, is divided over ranks, is read by another "
        "module, too, or its operand is another one ({})",
        name, layer->operand().kind());
    if (needs_inputs(options.kind))
      TUTTI_CHECK(options.inputs != nullptr && options.inputs->find(name) != nullptr,
                  "quantize_: {} needs the inputs of '{}', and none were recorded; run the model over a data set while "
                  "an nn::InputRecorder exists, or take {}",
                  name_of(options.kind), name, row_of(options.kind).is_fp8() ? "fp8" : "int8");
    check_numbers(layer->weight.use(), name);
    const int64_t in = layer->weight.sizes()[1];
    if (options.kind == Quantization::int4_weight_only)
      TUTTI_CHECK(options.group > 0 && options.group % 8 == 0 && in % options.group == 0,
                  "quantize_: rows of {} elements of '{}' are not whole groups of {}; expected a multiple of 8 that "
                  "divides them",
                  in, name, options.group);
  }
}

}  // namespace

std::vector<QuantizedLayer> quantize_(Module& module, const QuantizeOptions& options) {
  const NoGradScope no_grad;
  const std::vector<NamedLinear> targets = targets_of(module, options);
  check(module, targets, options);
  std::vector<QuantizedLayer> report;
  for (const NamedLinear& target : targets) report.push_back(quantize_layer(target, options));
  return report;
}

}  // namespace tutti::nn

#include "tutti/nn/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
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

constexpr std::array<std::string_view, 6> kNames{
    "int8", "fp8", "int8_static", "fp8_static", "int8_weight_only", "int4_weight_only"};

bool is_fp8(Quantization kind) { return kind == Quantization::fp8 || kind == Quantization::fp8_static; }

struct NamedLinear {
  std::string name;
  Linear* layer;
};

// Whether the layer computes with its own weight of numbers, whole on this rank.
bool can_be_quantized(const Linear& layer) {
  const Parameter& weight = layer.weight;
  const std::vector<Parameter> used = layer.operand().parameters();
  return weight.is_materialized() && !weight.holds_blocks() && !dist::is_dtensor(weight.master()) && used.size() == 1 &&
         used[0].is_same(weight) && layer.operand().kind() == "dense";
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
  if (is_fp8(kind)) {
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

struct Replacement {
  std::shared_ptr<const LinearOperand> operand;
  Tensor numbers;  // that the codes stand for
  int64_t nbytes = 0;
};

Replacement replacement_of(const NamedLinear& target, const QuantizeOptions& options) {
  const std::string kind(name_of(options.kind));
  const Tensor weight = target.layer->weight.use();
  if (options.kind == Quantization::int4_weight_only) {
    const CodedWeight coded = coded_groups(weight, options.group, target.name);
    return {std::make_shared<WeightOnlyOperand>(kind, coded), decoded(coded),
            coded.codes.nbytes() + coded.scale.nbytes() + coded.minimum.nbytes()};
  }
  const DType codes = is_fp8(options.kind) ? DType::f8e4m3fn : DType::i8;
  const ScaledWeight coded = coded_rows(weight, codes, target.name);
  const int64_t nbytes = coded.codes.nbytes() + coded.scale.nbytes();
  if (options.kind == Quantization::int8_weight_only)
    return {std::make_shared<WeightOnlyOperand>(kind, CodedWeight{coded.codes, coded.scale}), decoded(coded), nbytes};
  const bool is_static = needs_inputs(options.kind);
  const AffineScale x = is_static ? scale_of_inputs(*options.inputs->find(target.name), options.kind) : AffineScale{};
  const DType x_codes = options.kind == Quantization::int8_static ? DType::u8 : codes;
  return {std::make_shared<ScaledOperand>(kind, coded, x, x_codes), decoded(coded), nbytes};
}

QuantizedLayer quantize_layer(const NamedLinear& target, const QuantizeOptions& options) {
  Linear& layer = *target.layer;
  const Tensor weight = layer.weight.use();
  QuantizedLayer report{.name = target.name, .sizes = layer.weight.sizes(), .nbytes_before = weight.nbytes()};
  const Replacement made = replacement_of(target, options);
  report.nbytes_after = made.nbytes;
  report.weight_error = relative_error(made.numbers, weight);
  const InputRecorder::Inputs* inputs = options.inputs == nullptr ? nullptr : options.inputs->find(target.name);
  if (inputs != nullptr) {
    const int64_t in = report.sizes[1];
    const Tensor x = Tensor::of<float>(inputs->kept, {std::ssize(inputs->kept) / std::max<int64_t>(in, 1), in});
    report.result_error = relative_error(made.operand->product(x), linear(x, cast(weight, DType::f32)));
  }
  layer.set_operand(made.operand);
  layer.weight.release(fmt::format("nn::quantize_() has replaced it by codes ({})", name_of(options.kind)));
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
                  name_of(options.kind), name, is_fp8(options.kind) ? "fp8" : "int8");
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

std::string_view name_of(Quantization kind) { return kNames.at(static_cast<size_t>(kind)); }

Quantization quantization_from_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  TUTTI_CHECK(found != kNames.end(),
              "'{}' is no kind of quantization; expected int8, fp8, int8_static, fp8_static, int8_weight_only or "
              "int4_weight_only",
              name);
  return static_cast<Quantization>(found - kNames.begin());
}

bool needs_inputs(Quantization kind) { return kind == Quantization::int8_static || kind == Quantization::fp8_static; }

std::vector<QuantizedLayer> quantize_(Module& module, const QuantizeOptions& options) {
  const NoGradScope no_grad;
  const std::vector<NamedLinear> targets = targets_of(module, options);
  check(module, targets, options);
  std::vector<QuantizedLayer> report;
  for (const NamedLinear& target : targets) report.push_back(quantize_layer(target, options));
  return report;
}

}  // namespace tutti::nn

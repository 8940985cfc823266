#include "tutti/nn/coded_operand.h"

#include <algorithm>
#include <memory>

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/weight_codes.h"
#include "tutti/ops/scaled_linear.h"
#include "tutti/ops/weight_only_linear.h"

namespace tutti::nn {
namespace {

// The matrix that the codes stand for.
Extents matrix_of(Quantization kind, const WeightCodes& codes) {
  TUTTI_CHECK(codes.codes.defined() && codes.codes.ndim() == 2, "the codes of {} are {}; expected two dims",
              name_of(kind), describe(codes.codes));
  return {codes.codes.extent(0), codes.codes.extent(1) * (row_of(kind).has_groups() ? 2 : 1)};
}

int64_t groups_of(const WeightCodes& codes) {
  return codes.scale.defined() && codes.scale.ndim() == 2 ? codes.scale.extent(1) : 0;
}

bool is_divided(const Parameter& weight) {
  if (weight.holds_blocks()) return dist::is_dtensor(weight.blocks());
  return weight.is_materialized() && dist::is_dtensor(weight.master());
}

}  // namespace

std::optional<PartMeta> meta_of(Quantization kind, const CodePart& part, const Extents& matrix, int64_t groups) {
  const QuantizationRow& row = row_of(kind);
  const int64_t out = matrix[0], in = matrix[1];
  if (part.tensor == &WeightCodes::codes) return PartMeta{row.codes, {out, row.has_groups() ? in / 2 : in}};
  if (part.tensor == &WeightCodes::scale)
    return PartMeta{DType::f32, row.has_groups() ? Extents{out, groups} : Extents{out}};
  if (part.tensor == &WeightCodes::minimum && row.has_groups()) return PartMeta{DType::f32, {out, groups}};
  if (part.tensor == &WeightCodes::x_scale && row.is_static) return PartMeta{DType::f32, {1}};
  if (part.tensor == &WeightCodes::x_zero_point && row.is_static && !row.is_fp8()) return PartMeta{DType::i32, {1}};
  return std::nullopt;
}

CodedOperand::CodedOperand(Quantization kind, const WeightCodes& codes)
    : quantization_(kind), sizes_(matrix_of(kind, codes)) {
  check(codes);
  for (size_t i = 0; i < std::size(kCodeParts); ++i) {
    const Tensor& value = codes.*kCodeParts[i].tensor;
    if (value.defined()) buffers_[i] = Buffer(i == 0 ? "codes" : std::string(kCodeParts[i].name), value);
  }
}

void CodedOperand::check(const WeightCodes& codes) const {
  TUTTI_CHECK(matrix_of(quantization_, codes) == sizes_, "the codes of {} are {}; expected those of a matrix {}",
              kind(), describe(codes.codes), sizes_);
  for (const CodePart& part : kCodeParts) {
    const Tensor& value = codes.*part.tensor;
    const std::optional<PartMeta> meta = meta_of(quantization_, part, sizes_, groups_of(codes));
    TUTTI_CHECK(
        meta ? value.defined() && value.dtype() == meta->dtype && value.extents() == meta->sizes : !value.defined(),
        "{} codes of a matrix {}: {} is {}; expected {}", kind(), sizes_,
        part.name.empty() ? "the tensor of codes" : part.name, describe(value),
        meta ? fmt::format("{} {}", meta->sizes, name_of(meta->dtype)) : "none");
  }
}

WeightCodes CodedOperand::codes() const {
  WeightCodes codes;
  for (size_t i = 0; i < std::size(kCodeParts); ++i) codes.*kCodeParts[i].tensor = buffers_[i];
  return codes;
}

int64_t CodedOperand::nbytes() const {
  const WeightCodes held = codes();
  return held.codes.nbytes() + held.scale.nbytes() + (held.minimum.defined() ? held.minimum.nbytes() : 0);
}

void CodedOperand::set(const WeightCodes& codes) const {
  check(codes);
  for (size_t i = 0; i < std::size(kCodeParts); ++i)
    if (buffers_[i].defined()) buffers_[i].set(codes.*kCodeParts[i].tensor);
}

Tensor CodedOperand::product(const Tensor& x, std::optional<DType> out_dtype) const {
  const WeightCodes held = codes();
  const QuantizationRow& row = row_of(quantization_);
  if (row.is_weight_only) return weight_only_linear(x, {held.codes, held.scale, held.minimum}, out_dtype);
  return scaled_linear(x, {held.codes, held.scale},
                       {.x = {held.x_scale, held.x_zero_point}, .x_codes = row.x_codes, .out_dtype = out_dtype});
}

Tensor decoded(Quantization kind, const WeightCodes& codes) {
  return row_of(kind).has_groups() ? decoded(CodedWeight{codes.codes, codes.scale, codes.minimum})
                                   : decoded(ScaledWeight{codes.codes, codes.scale});
}

const CodedOperand* coded_operand_of(const Linear& layer) {
  return dynamic_cast<const CodedOperand*>(&layer.operand());
}

bool can_hold_codes(const Linear& layer) {
  const std::vector<Parameter> used = layer.operand().parameters();
  return used.size() == 1 && used[0].is_same(layer.weight) && !is_divided(layer.weight) &&
         dynamic_cast<const DenseOperand*>(&layer.operand()) != nullptr;
}

void hold_codes(Linear& layer, Quantization kind, const WeightCodes& codes) {
  if (const CodedOperand* held = coded_operand_of(layer); held != nullptr && held->quantization() == kind)
    return held->set(codes);
  TUTTI_CHECK(can_hold_codes(layer),
              "layer '{}' cannot be held as codes ({}): it computes with a matrix of kind {}, "
              "or ranks divide its weight",
              layer.call_name(), name_of(kind), layer.operand().kind());
  layer.set_operand(std::make_shared<CodedOperand>(kind, codes));
  layer.weight.release(fmt::format("codes have replaced it ({})", name_of(kind)));
}

}  // namespace tutti::nn

#include "tutti/nn/coded_operand.h"

#include <utility>

namespace tutti::nn {
namespace {

Buffer held(const char* name, const Tensor& value) { return value.defined() ? Buffer(name, value) : Buffer(); }

}  // namespace

ScaledOperand::ScaledOperand(std::string kind, const ScaledWeight& weight, const AffineScale& x, DType x_codes)
    : kind_(std::move(kind)),
      sizes_(weight.codes.extents()),
      x_codes_(x_codes),
      codes_("codes", weight.codes),
      scale_("scale", weight.scale),
      x_scale_(held("x_scale", x.scale)),
      x_zero_point_(held("x_zero_point", x.zero_point)) {}

Tensor ScaledOperand::product(const Tensor& x, std::optional<DType> out_dtype) const {
  return scaled_linear(x, {codes_.use(), scale_.use()},
                       {.x = {x_scale_, x_zero_point_}, .x_codes = x_codes_, .out_dtype = out_dtype});
}

WeightOnlyOperand::WeightOnlyOperand(std::string kind, const CodedWeight& weight)
    : kind_(std::move(kind)),
      sizes_{weight.codes.extents()[0], weight.codes.extents()[1] * (weight.codes.dtype() == DType::u8 ? 2 : 1)},
      codes_("codes", weight.codes),
      scale_("scale", weight.scale),
      minimum_(held("minimum", weight.minimum)) {}

Tensor WeightOnlyOperand::product(const Tensor& x, std::optional<DType> out_dtype) const {
  return weight_only_linear(x, {codes_.use(), scale_.use(), minimum_}, out_dtype);
}

}  // namespace tutti::nn

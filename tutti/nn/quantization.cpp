#include "tutti/nn/quantization.h"

#include <algorithm>
#include <array>

#include "tutti/core/error.h"

namespace tutti::nn {
namespace {

using enum DType;

constexpr std::array<QuantizationRow, std::size(kQuantizations)> kRows{{{"int8", i8, i8},
                                                                        {"fp8", f8e4m3fn, f8e4m3fn},
                                                                        {"int8_static", i8, u8, false, true},
                                                                        {"fp8_static", f8e4m3fn, f8e4m3fn, false, true},
                                                                        {"int8_weight_only", i8, i8, true},
                                                                        {"int4_weight_only", u8, u8, true}}};

}  // namespace

const QuantizationRow& row_of(Quantization kind) { return kRows.at(static_cast<size_t>(kind)); }
std::string_view name_of(Quantization kind) { return row_of(kind).name; }
bool needs_inputs(Quantization kind) { return row_of(kind).is_static; }

Quantization quantization_from_name(std::string_view name) {
  const auto found = std::find_if(kRows.begin(), kRows.end(), [&](const auto& row) { return row.name == name; });
  TUTTI_CHECK(found != kRows.end(),
              "'{}' is no kind of quantization; expected int8, fp8, int8_static, fp8_static, int8_weight_only or "
              "int4_weight_only",
              name);
  return static_cast<Quantization>(found - kRows.begin());
}

}  // namespace tutti::nn

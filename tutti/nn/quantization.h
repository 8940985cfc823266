// How weights of linear layers are held as codes: torchao's kinds.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/core/dtype.h"

namespace tutti::nn {

enum class Quantization : uint8_t {
  int8,              // rows of W and of x as i8, each with its own scale
  fp8,               // the same as f8e4m3fn
  int8_static,       // rows of W as i8, x as u8 with the scale and the zero point of all inputs that were recorded
  fp8_static,        // rows of W as f8e4m3fn, x with one scale that was recorded
  int8_weight_only,  // rows of W as i8; x keeps its precision
  int4_weight_only,  // groups of W as codes of 4 bits; x keeps its precision
};
inline constexpr Quantization kQuantizations[] = {Quantization::int8,
                                                  Quantization::fp8,
                                                  Quantization::int8_static,
                                                  Quantization::fp8_static,
                                                  Quantization::int8_weight_only,
                                                  Quantization::int4_weight_only};

struct QuantizationRow {
  std::string_view name;
  DType codes;    // of W; u8: two codes of 4 bits in a byte
  DType x_codes;  // of x, where x is rounded
  bool is_weight_only = false;
  bool is_static = false;  // x is rounded by a scale that is known beforehand
  bool has_groups() const { return codes == DType::u8; }
  bool is_fp8() const { return codes == DType::f8e4m3fn; }
};
const QuantizationRow& row_of(Quantization kind);
std::string_view name_of(Quantization kind);
// UsageError lists the names.
Quantization quantization_from_name(std::string_view name);
bool needs_inputs(Quantization kind);  // those that are static

}  // namespace tutti::nn

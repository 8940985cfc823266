// Products of codes in plain loops, from numerics contract N12 and not from the kernels.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/scaled/call.h"

namespace tutti::scaled {
namespace {

float read_float(const Tensor& t, int64_t offset) { return static_cast<float>(facets::read_double(t, offset)); }

// The number nearest to x among the codes, as a code less the zero point, or as a number of e4m3fn.
double rounded(float x, DType codes, int32_t zero_point) {
  if (codes == DType::f8e4m3fn) return std::isnan(x) ? x : to_float(to_float8_e4m3fn(std::clamp(x, -448.0F, 448.0F)));
  const double lowest = codes == DType::u8 ? 0 : -128;
  const double code = std::isnan(x) ? lowest : std::nearbyint(static_cast<double>(x)) + zero_point;
  return std::clamp(code, lowest, lowest + 255) - zero_point;
}

struct Row {
  std::vector<double> terms;  // codes less the zero point, or decoded codes
  float scale;
};

float scale_at(const Tensor& t, int64_t i) { return read_float(t, t.numel() == 1 ? 0 : i * t.strides()[0]); }
int32_t integer_of(const Tensor& t) { return t.numel() == 0 ? 0 : static_cast<int32_t>(facets::read_int64(t, 0)); }

Row row_of(const OpCall& call, int64_t i) {
  const Tensor &x = call[0], &scales = call[1];
  const DType codes = call.attrs.as<ScaledLinearAttrs>().x_codes;
  const int32_t zero_point = integer_of(call[2]);
  Row row{.terms = {}, .scale = scales.numel() == 0 ? 0 : scale_at(scales, i)};
  std::vector<float> numbers;
  for (int64_t p = 0; p < x.extents()[1]; ++p)
    numbers.push_back(read_float(x, i * x.strides()[0] + p * x.strides()[1]));
  if (x.dtype() == codes) {
    for (const float code : numbers)
      row.terms.push_back(codes == DType::f8e4m3fn ? code : static_cast<double>(code) - zero_point);
    return row;
  }
  float inverse = 1.0F / row.scale;
  if (scales.numel() == 0) {
    float largest = 0;
    bool is_finite = true;
    for (const float v : numbers) largest = std::max(largest, std::abs(v)), is_finite = is_finite && std::isfinite(v);
    row.scale =
        is_finite ? largest / (codes == DType::f8e4m3fn ? 448.0F : 127.0F) : std::numeric_limits<float>::quiet_NaN();
    if (is_finite && !std::isnormal(row.scale)) row.scale = 0;
    inverse = std::isnormal(row.scale) ? 1.0F / row.scale : 0;
  }
  for (const float v : numbers) row.terms.push_back(inverse == 0 ? 0.0 : rounded(v * inverse, codes, zero_point));
  return row;
}

struct Column {
  const Tensor& w;
  int64_t j;
  double operator[](int64_t p) const { return facets::read_double(w, j * w.strides()[0] + p * w.strides()[1]); }
};

float sum_in_tree(const Row& row, const Column& column, int64_t begin, int64_t end) {
  if (end - begin > codegen::contraction_leaf()) {
    const int64_t middle = begin + (end - begin + 1) / 2;
    return sum_in_tree(row, column, begin, middle) + sum_in_tree(row, column, middle, end);
  }
  float sum = -0.0F;
  for (int64_t p = begin; p < end; ++p)
    sum = std::fma(static_cast<float>(row.terms[static_cast<size_t>(p)]), static_cast<float>(column[p]), sum);
  return sum;
}

float total_of(const Row& row, const Column& column) {
  const int64_t k = std::ssize(row.terms);
  if (column.w.dtype() == DType::f8e4m3fn) return sum_in_tree(row, column, 0, k);
  int64_t sum = 0;
  for (int64_t p = 0; p < k; ++p) sum += static_cast<int64_t>(row.terms[static_cast<size_t>(p)] * column[p]);
  return static_cast<float>(sum);
}

}  // namespace

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  for (int64_t i = 0; i < call[0].extents()[0]; ++i) {
    const Row row = row_of(call, i);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const size_t first = kSharedInputs + o * kInputsOfWeight;
      const Tensor &scale = call[first + 1], &bias = call[first + 2], &y_scale = call[first + 3], &y = outputs[o];
      for (int64_t j = 0; j < y.extents()[1]; ++j) {
        float value = total_of(row, {call[first], j}) * (row.scale * scale_at(scale, j));
        if (bias.numel() > 0) value += read_float(bias, j * bias.strides()[0]);
        const int64_t at = i * y.strides()[0] + j * y.strides()[1];
        if (y_scale.numel() == 0) {
          facets::write_double(y, at, value);
          continue;
        }
        const int32_t zero_point = integer_of(call[first + 4]);
        const double code = rounded(value * (1.0F / scale_at(y_scale, 0)), y.dtype(), zero_point);
        facets::write_double(y, at, y.dtype() == DType::f8e4m3fn ? code : code + zero_point);
      }
    }
  }
}

}  // namespace tutti::scaled

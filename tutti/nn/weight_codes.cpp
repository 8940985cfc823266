#include "tutti/nn/weight_codes.h"

#include <algorithm>
#include <cmath>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/core/error.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"

namespace tutti::nn {
namespace {

Tensor numbers_of(const Tensor& weight, const std::string& what) {
  TUTTI_CHECK(weight.ndim() == 2, "quantize_: the weight of '{}' is {}; expected [out, in]", what, describe(weight));
  const Tensor numbers = to_contiguous(cast(weight, DType::f32));
  const float* w = numbers.data<float>();
  const int64_t k = numbers.extents()[1];
  for (int64_t i = 0; i < numbers.numel(); ++i)
    TUTTI_CHECK(std::isfinite(w[i]), "quantize_: the weight of '{}' is {} at [{}, {}]; codes stand for finite numbers",
                what, w[i], i / k, i % k);
  return numbers;
}

}  // namespace

void check_numbers(const Tensor& weight, const std::string& what) { numbers_of(weight, what); }

ScaledWeight coded_rows(const Tensor& weight, DType dtype, const std::string& what) {
  const Tensor numbers = numbers_of(weight, what);
  const int64_t n = numbers.extents()[0], k = numbers.extents()[1];
  const ScaledWeight coded{Tensor::empty({n, k}, dtype), Tensor::empty({n}, DType::f32)};
  auto* codes = static_cast<uint8_t*>(coded.codes.raw_data());
  for (int64_t j = 0; j < n; ++j) {
    const float* row = numbers.data<float>() + j * k;
    float largest = 0;
    for (int64_t p = 0; p < k; ++p) largest = std::max(largest, std::abs(row[p]));
    const codegen::CodeScale scale = codegen::code_scale(largest, dtype);
    coded.scale.data<float>()[j] = scale.d == 0 ? 1 : scale.d;
    for (int64_t p = 0; p < k; ++p)
      codegen::write_code(dtype, scale.inverse == 0 ? 0 : row[p] * scale.inverse, 0, codes + j * k + p);
  }
  return coded;
}

CodedWeight coded_groups(const Tensor& weight, int64_t group, const std::string& what) {
  const Tensor numbers = numbers_of(weight, what);
  const int64_t n = numbers.extents()[0], k = numbers.extents()[1];
  TUTTI_CHECK(
      group > 0 && group % 8 == 0 && k % group == 0,
      "quantize_: rows of {} elements of '{}' are not whole groups of {}; expected a multiple of 8 that divides "
      "them",
      k, what, group);
  const CodedWeight coded{Tensor::empty({n, k / 2}, DType::u8), Tensor::empty({n, k / group}),
                          Tensor::empty({n, k / group})};
  for (int64_t g = 0; g < n * (k / group); ++g) {
    const float* from = numbers.data<float>() + g * group;
    const auto [least, most] = std::minmax_element(from, from + group);
    // Halves first, because the difference itself may overflow.
    const float step = (*most / 2 - *least / 2) / 7.5F, scale = std::isnormal(step) ? step : 0, minimum = *least;
    coded.scale.data<float>()[g] = scale;
    coded.minimum.data<float>()[g] = minimum;
    const auto code = [&](int64_t i) {
      const float steps = scale == 0 ? 0 : (from[i] / 2 - minimum / 2) / (scale / 2);
      return static_cast<uint8_t>(std::clamp(std::nearbyint(steps), 0.0F, 15.0F));
    };
    for (int64_t i = 0; i < group; i += 2)
      coded.codes.data<uint8_t>()[(g * group + i) / 2] = static_cast<uint8_t>(code(i) | code(i + 1) << 4);
  }
  return coded;
}

Tensor decoded(const ScaledWeight& weight) {
  const Tensor numbers = to_contiguous(cast(weight.codes, DType::f32));
  const int64_t k = numbers.extents()[1];
  for (int64_t i = 0; i < numbers.numel(); ++i) numbers.data<float>()[i] *= weight.scale.data<float>()[i / k];
  return numbers;
}

Tensor decoded(const CodedWeight& weight) {
  const int64_t n = weight.codes.extents()[0], k = weight.codes.extents()[1] * 2, groups = weight.scale.extents()[1];
  const Tensor numbers = Tensor::empty({n, k});
  for (int64_t i = 0; i < n * k; ++i) {
    const int64_t g = i / k * groups + i % k / (k / groups);
    const int byte = weight.codes.data<uint8_t>()[i / 2];
    numbers.data<float>()[i] = std::fma(static_cast<float>(i % 2 == 0 ? byte & 15 : byte >> 4),
                                        weight.scale.data<float>()[g], weight.minimum.data<float>()[g]);
  }
  return numbers;
}

}  // namespace tutti::nn

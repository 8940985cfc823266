#include "tutti/ops/pointwise/pointwise.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tutti {
namespace {

constexpr size_t kOperands = 20;

// Operand i is [i, -i].
std::vector<Tensor> operands(DType dtype) {
  std::vector<Tensor> list;
  for (size_t i = 0; i < kOperands; ++i) {
    list.push_back(Tensor::empty({2}, dtype));
    const auto value = static_cast<int64_t>(i);
    facets::write_int64(list.back(), 0, value);
    facets::write_int64(list.back(), 1, -value);
  }
  return list;
}

template <class T>
T sum_of(const T* values, size_t count) {
  return std::accumulate(values, values + count, T{});
}

// The list of an op may be as long as its caller likes.
TEST(PointwiseReference, ReadsAnyNumberOfOperands) {
  for (const DType dtype : {DType::f32, DType::i64}) {
    const std::vector<Tensor> inputs = operands(dtype);
    const Tensor sums = Tensor::empty({2}, dtype);
    pointwise::run_map(
        {sums, inputs, dtype}, [](const double* v) { return sum_of(v, kOperands); },
        [](const int64_t* v) { return sum_of(v, kOperands); });
    EXPECT_EQ(facets::values(sums, {2}), (std::vector<double>{190, -190})) << name_of(dtype);
  }
}

TEST(PointwiseReference, PutsAScalarAmongAnyNumberOfOperands) {
  for (const DType dtype : {DType::f32, DType::i64}) {
    const std::vector<Tensor> inputs = operands(dtype);
    for (const size_t place : {size_t{0}, size_t{7}, kOperands}) {
      const Tensor picked = Tensor::empty({2}, dtype), sums = Tensor::empty({2}, dtype);
      const auto at = static_cast<int>(place);
      pointwise::run_map(
          {picked, inputs, dtype, 1000, at}, [&](const double* v) { return v[place]; },
          [&](const int64_t* v) { return v[place]; });
      pointwise::run_map(
          {sums, inputs, dtype, 1000, at}, [](const double* v) { return sum_of(v, kOperands + 1); },
          [](const int64_t* v) { return sum_of(v, kOperands + 1); });
      EXPECT_EQ(facets::values(picked, {2}), (std::vector<double>{1000, 1000})) << name_of(dtype) << " " << place;
      EXPECT_EQ(facets::values(sums, {2}), (std::vector<double>{1190, 810})) << name_of(dtype) << " " << place;
    }
  }
}

TEST(PointwiseReference, OfACallReadsAnyNumberOfInputs) {
  for (const DType dtype : {DType::f32, DType::i64}) {
    const std::vector<Tensor> inputs = operands(dtype);
    const Tensor sums = Tensor::empty({2}, dtype);
    const Attrs none;
    facets::reference_map(
        {find_op("add_in_order"), inputs, none}, {&sums, 1}, [](const double* v) { return sum_of(v, kOperands); },
        [](const int64_t* v) { return sum_of(v, kOperands); });
    EXPECT_EQ(facets::values(sums, {2}), (std::vector<double>{190, -190})) << name_of(dtype);
  }
}

}  // namespace
}  // namespace tutti

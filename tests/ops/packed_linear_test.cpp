#include "tutti/ops/packed_linear.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;

void expect_same_bits(const Tensor& x, const Tensor& y, const std::string& where) {
  ASSERT_EQ(x.extents(), y.extents()) << where;
  ASSERT_EQ(x.dtype(), y.dtype()) << where;
  EXPECT_EQ(std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())), 0) << where;
}

void expect_linear(const Tensor& x, const Tensor& weight) {
  const Tensor packed = pack_weight(weight);
  EXPECT_EQ(packed.dtype(), weight.dtype());
  expect_same_bits(packed_linear(x, packed, weight.size(0)), linear(x, weight),
                   fmt::format("{} {}", describe(x), describe(weight)));
}

TEST(PackedLinear, HasTheBitsOfLinear) {
  for (const int64_t m : {1, 2, 3, 6, 7, 33, 96, 97, 200})
    for (const int64_t n : {1, 47, 48, 49, 131})
      for (const int64_t k : {1, 7, 128, 129, 1000}) expect_linear(sample_tensor(1, {m, k}), sample_tensor(2, {n, k}));
}

TEST(PackedLinear, TakesEveryMixOfDtypes) {
  const DType narrow[] = {DType::f32, DType::bf16, DType::f16};
  for (const DType weight : narrow)
    for (const DType x : narrow) expect_linear(sample_tensor(1, {5, 300}, x), sample_tensor(2, {70, 300}, weight));
  for (const DType x : {DType::f64, DType::f32, DType::bf16})
    expect_linear(sample_tensor(1, {5, 300}, x), sample_tensor(2, {70, 300}, DType::f64));
}

TEST(PackedLinear, TakesLeadingDimsStridesAndSizesOfZero) {
  const Tensor weight = sample_tensor(2, {50, 30}), packed = pack_weight(facets::strided_copy(weight));
  expect_linear(sample_tensor(1, {2, 3, 30}), weight);
  expect_same_bits(packed_linear(facets::strided_copy(sample_tensor(1, {4, 30})), packed, 50),
                   linear(sample_tensor(1, {4, 30}), weight), "strided");
  expect_same_bits(packed_linear(transpose(sample_tensor(1, {30, 4}), 0, 1), packed, 50),
                   linear(transpose(sample_tensor(1, {30, 4}), 0, 1), weight), "turned");
  EXPECT_EQ(packed_linear(zeros({0, 30}), packed, 50).extents(), (Extents{0, 50}));
  EXPECT_EQ(packed_linear(zeros({2, 30}), pack_weight(zeros({0, 30})), 0).extents(), (Extents{2, 0}));
  expect_linear(zeros({2, 0}), zeros({3, 0}));
}

TEST(PackedLinear, DoesNotDependOnThreads) {
  const Tensor x = sample_tensor(1, {3, 700}), packed = pack_weight(sample_tensor(2, {900, 700}));
  RankContext& context = RankContext::current();
  context.set_threads(1);
  const Tensor one = packed_linear(x, packed, 900);
  context.set_threads(3);
  const Tensor three = packed_linear(x, packed, 900);
  context.set_threads(0);
  expect_same_bits(one, three, "threads");
}

TEST(PackedLinear, SaysWhatIsWrong) {
  const auto message_of = [](const Tensor& x, const Tensor& packed, int64_t out) {
    try {
      packed_linear(x, packed, out);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const Tensor packed = pack_weight(zeros({50, 30}));
  EXPECT_EQ(message_of(zeros({2, 31}), packed, 50),
            "packed_linear: x is [2, 31], the packed weight [2, 30, 48]; expected [..., in] and [panels, in, 48], as "
            "pack_weight() gives it");
  EXPECT_EQ(message_of(zeros({2, 30}), packed, 97),
            "packed_linear: 97 features out of 2 panels of 48; expected 49 to 96");
  EXPECT_EQ(message_of(zeros({2, 30}), packed, 48),
            "packed_linear: 48 features out of 2 panels of 48; expected 49 to 96");
  EXPECT_EQ(message_of(zeros({2, 30}, DType::f64), packed, 50),
            "packed_linear: x is [2, 30] f64 cpu, the packed weight [2, 30, 48] f32 cpu; expected f32, bf16 or f16, or "
            "a weight of f64");
  EXPECT_THROW(pack_weight(zeros({3})), UsageError);
  EXPECT_THROW(pack_weight(zeros({3, 4}, DType::i8)), UsageError);
}

}  // namespace
}  // namespace tutti

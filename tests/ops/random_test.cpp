#include "tutti/ops/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tutti/core/philox.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return x.extents() == y.extents() && std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

Tensor box(const Tensor& x, const Extents& offsets, const Extents& sizes) {
  int64_t offset = 0;
  for (size_t d = 0; d < offsets.size(); ++d) offset += offsets[d] * x.strides()[d];
  return x.view_as(sizes, x.strides(), offset);
}

TEST(Uniform, TakesTheLanesOfPhiloxBlocksInOrder) {
  const RandomKey key{.key = 0x0123456789abcdef, .step = 5, .virtual_shard = 9};
  const Tensor x = uniform({10}, key);
  for (int64_t i = 0; i < 10; ++i) {
    const auto block = philox4x32({static_cast<uint32_t>(i / 4), 0, 5, 9}, philox_key(key.key));
    EXPECT_EQ(x.data<float>()[i], static_cast<float>(block[static_cast<size_t>(i % 4)] >> 8) * 0x1p-24f) << i;
  }
}

// Kernels compute whole blocks where a row has them; what stands before and behind is computed element by element.
TEST(Uniform, DrawsTheSameWordsWhereverBlocksBegin) {
  for (int64_t first = 0; first < 6; ++first) {
    for (const int64_t n : {1, 3, 31, 32, 33, 67, 256, 1000}) {
      const RandomKey key{
          .key = 0xfedcba9876543210, .step = 2, .virtual_shard = 1, .first_index = first + (int64_t{1} << 34)};
      const Tensor x = randint(0, int64_t{1} << 31, {n}, key);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = key.first_index + i;
        const auto block =
            philox4x32({static_cast<uint32_t>(at / 4), static_cast<uint32_t>(at / 4 >> 32), 2, 1}, philox_key(key.key));
        ASSERT_EQ(x.data<int64_t>()[i], block[static_cast<size_t>(at % 4)] >> 1) << first << " " << n << " " << i;
      }
    }
  }
}

TEST(Normal, DrawsTheSamePairsWhereverBlocksBegin) {
  const Tensor whole = normal({5000}, RandomKey{.key = 21});
  for (int64_t first = 0; first < 6; ++first) {
    const Tensor part = normal({4000}, RandomKey{.key = 21, .first_index = first});
    EXPECT_TRUE(same_bits(part, whole.view_as({4000}, {1}, first))) << first;
  }
}

TEST(Dropout, OfRowsApartHasTheBitsOfDenseOnes) {
  const RandomKey key{.key = 3, .first_index = 1};
  const Tensor wide = uniform({7, 301}, RandomKey{.key = 4}, 1.0, 2.0), rows = wide.view_as({7, 299}, {301, 1}, 1);
  EXPECT_TRUE(same_bits(dropout(rows, 0.4, key), dropout(to_contiguous(rows), 0.4, key)));
  const Tensor narrow = dropout(full({513}, 1.0, DType::bf16), 0.5, key),
               f64 = dropout(full({513}, 1.0, DType::f64), 0.5, key);
  const Tensor f32 = dropout(ones({513}), 0.5, key);
  for (int64_t i = 0; i < 513; ++i) {
    EXPECT_EQ(to_float(narrow.data<bfloat16>()[i]), f32.data<float>()[i]);
    EXPECT_EQ(f64.data<double>()[i], static_cast<double>(f32.data<float>()[i]));
  }
}

TEST(Uniform, APartHasTheBitsOfTheWhole) {
  const RandomKey key = random_key("layers.0.wq", 0, 3, 1);
  const Extents sizes = {6, 8};
  const Tensor whole = uniform(to_shape(sizes), key);
  for (const auto& [offsets, part] : std::vector<std::pair<Extents, Extents>>{
           {{2, 0}, {3, 8}}, {{0, 3}, {6, 4}}, {{1, 5}, {4, 3}}, {{5, 7}, {1, 1}}, {{0, 0}, {6, 8}}}) {
    EXPECT_TRUE(same_bits(uniform(to_shape(part), part_of(key, sizes, part, offsets)), box(whole, offsets, part)))
        << to_string(offsets) << to_string(part);
  }
}

TEST(Normal, APartHasTheBitsOfTheWholeAlsoWhenItCutsAPair) {
  const RandomKey key{.key = 11};
  const Extents sizes = {5, 7};
  const Tensor whole = normal(to_shape(sizes), key);
  const Extents part = {3, 3}, offsets = {1, 2};
  EXPECT_TRUE(same_bits(normal(to_shape(part), part_of(key, sizes, part, offsets)), box(whole, offsets, part)));
}

TEST(RandomKey, OfAPartOfAPartIsThatOfThePart) {
  const RandomKey key{.key = 12};
  const RandomKey columns = part_of(key, {6, 8}, {6, 4}, {0, 3}), twice = part_of(columns, {6, 4}, {2, 3}, {1, 1});
  const RandomKey once = part_of(key, {6, 8}, {2, 3}, {1, 4});
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(twice.index_of(i), once.index_of(i));
}

TEST(RandomKey, RefusesAPartWhoseRunsAreNotEvenlyApart) {
  EXPECT_THROW(part_of({.key = 1}, {4, 4, 4}, {4, 2, 2}, {0, 1, 1}), UsageError);
}

TEST(RandomKey, DependsOnSeedPathAndOrdinal) {
  seed_all(1);
  const uint64_t key = random_key("a", 0).key;
  EXPECT_EQ(random_key("a", 0).key, key);
  EXPECT_NE(random_key("b", 0).key, key);
  EXPECT_NE(random_key("a", 1).key, key);
  seed_all(2);
  EXPECT_NE(random_key("a", 0).key, key);
  seed_all(0);
}

TEST(AnonymousDraws, StartOverWithTheSeed) {
  seed_all(3);
  const Tensor first = uniform({8}), second = uniform({8});
  EXPECT_FALSE(same_bits(first, second));
  seed_all(3);
  EXPECT_TRUE(same_bits(uniform({8}), first));
  seed_all(0);
}

TEST(Normal, HasItsMomentsAndStaysFinite) {
  const Tensor x = normal({1 << 16}, RandomKey{.key = 5}, 1.0, 2.0);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = x.data<float>()[i];
    ASSERT_TRUE(std::isfinite(v));
    sum += v;
    squares += v * v;
  }
  const double n = static_cast<double>(x.numel()), mean = sum / n;
  EXPECT_NEAR(mean, 1.0, 0.04);  // five standard errors
  EXPECT_NEAR(squares / n - mean * mean, 4.0, 0.12);
}

TEST(Randint, CoversItsRange) {
  const Tensor x = randint(-2, 3, {4096}, RandomKey{.key = 6});
  int counts[5] = {};
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t v = x.data<int64_t>()[i];
    ASSERT_TRUE(v >= -2 && v < 3);
    ++counts[v + 2];
  }
  for (const int count : counts) EXPECT_NEAR(count, 819, 130);
  EXPECT_THROW(randint(3, 3, {1}), UsageError);
  EXPECT_THROW(randint(0, 5, {1}, DType::f32), UsageError);
}

TEST(Dropout, KeepsTheMeanAndDropsTheSameElementsForTheSameKey) {
  const RandomKey key{.key = 8, .step = 2};
  const Tensor x = ones({10000}), y = dropout(x, 0.25, key);
  int dropped = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const float v = y.data<float>()[i];
    ASSERT_TRUE(v == 0.0f || v == 1.0f / 0.75f);
    dropped += v == 0.0f;
  }
  EXPECT_NEAR(dropped, 2500, 220);
  EXPECT_TRUE(same_bits(dropout(x, 0.25, key), y));
  EXPECT_FALSE(same_bits(dropout(x, 0.25, RandomKey{.key = 8, .step = 3}), y));
  EXPECT_THROW(dropout(x, 1.5), UsageError);
}

}  // namespace
}  // namespace tutti

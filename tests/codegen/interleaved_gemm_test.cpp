// Sums of products as one contraction, against a scalar walk over the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tests/codegen/support/gemm_definition.h"
#include "tests/support/message_of.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using gemm_test::Matrix;

struct Case {
  std::vector<DType> dtypes = {DType::f32};  // of the sources, over and over
  DType c = DType::f32;
  bool a_transposed = false, b_transposed = false;
  int64_t gap = 0;
};

class Sum {
 public:
  Sum(int64_t m, int64_t n, std::vector<int64_t> lengths, const Case& with = {})
      : m(m), n(n), lengths(std::move(lengths)), with_(with) {
    for (size_t i = 0; i < this->lengths.size(); ++i) {
      const DType dtype = with.dtypes[i % with.dtypes.size()];
      a.emplace_back(m, this->lengths[i], dtype, 10 + i, with.a_transposed, with.gap);
      b.emplace_back(this->lengths[i], n, dtype, 20 + i, with.b_transposed, with.gap);
    }
  }

  std::vector<GemmSource> sources() const {
    std::vector<GemmSource> list;
    for (size_t i = 0; i < lengths.size(); ++i) list.push_back({a[i].operand(), b[i].operand(), lengths[i]});
    return list;
  }
  Matrix run(const GemmOptions& options = {}) const {
    Matrix c(m, n, with_.c, 3, false, with_.gap);
    interleaved_gemm(m, n, sources(), c.result(), options);
    return c;
  }

  bool are_bf16() const {
    return std::all_of(with_.dtypes.begin(), with_.dtypes.end(), [](DType dtype) { return dtype == DType::bf16; });
  }
  // The definition: chains over the pieces of a leaf, nodes as the tree says.
  template <class T>
  T value(int64_t i, int64_t j) const {
    const InterleavedContraction contraction = InterleavedContraction::halving(lengths);
    std::vector<T> pending;
    size_t piece = 0;
    for (size_t leaf = 0; leaf < contraction.tree.leaf_lengths.size(); ++leaf) {
      T sum = T{-0.0};
      for (int32_t left = contraction.tree.leaf_lengths[leaf]; left > 0; ++piece) {
        const auto& p = contraction.pieces[piece];
        const auto s = static_cast<size_t>(p.source);
        if (are_bf16()) {
          const auto term = [&](int64_t k) { return std::pair(a[s](i, p.first_k + k), b[s](p.first_k + k, j)); };
          sum = static_cast<T>(testing::bf16_leaf(p.length, term, static_cast<float>(sum)));
        } else {
          for (int64_t k = p.first_k; k < p.first_k + p.length; ++k)
            sum = std::fma(static_cast<T>(a[s](i, k)), static_cast<T>(b[s](k, j)), sum);
        }
        left -= p.length;
      }
      for (int merges = contraction.tree.merges[leaf]; merges > 0; --merges)
        sum = pending.back() + sum, pending.pop_back();
      pending.push_back(sum);
    }
    return pending.empty() ? T{-0.0} : pending.back();
  }

  int64_t wrong_elements(const Matrix& c) const {
    const bool wide = std::find(with_.dtypes.begin(), with_.dtypes.end(), DType::f64) != with_.dtypes.end();
    int64_t wrong = 0;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        std::byte expected[8];
        store_from_double(expected, c.dtype, wide ? value<double>(i, j) : value<float>(i, j));
        wrong += std::memcmp(expected, c.at(i * c.row_stride + j), static_cast<size_t>(itemsize(c.dtype))) != 0;
      }
    }
    return wrong;
  }

  const int64_t m, n;
  const std::vector<int64_t> lengths;
  std::vector<Matrix> a, b;

 private:
  const Case with_;
};

TEST(InterleavedContraction, HalvesAllLengthsTogether) {
  const InterleavedContraction c = InterleavedContraction::halving(std::vector<int64_t>{256, 128, 128}, 128);
  EXPECT_EQ(c.tree.leaf_lengths, std::vector<int32_t>(4, 128));
  EXPECT_EQ(c.tree.merges, (std::vector<uint8_t>{0, 1, 0, 2}));
  ASSERT_EQ(c.pieces.size(), 12u);
  EXPECT_EQ(c.pieces[4].source, 1);
  EXPECT_EQ(c.pieces[3].source, 0);
  EXPECT_EQ(c.pieces[3].first_k, 64);
  EXPECT_EQ(c.pieces[3].length, 64);
  EXPECT_EQ(c.pieces[11].source, 2);
  EXPECT_EQ(c.pieces[11].first_k, 96);
}

TEST(InterleavedContraction, OfOneLengthIsTheTreeOfAContraction) {
  for (const int64_t k : {0, 1, 127, 129, 300, 1000, 1025}) {
    const InterleavedContraction c = InterleavedContraction::halving(std::vector<int64_t>{k});
    EXPECT_EQ(c.tree.leaf_lengths, ContractionTree::halving(k).leaf_lengths) << k;
    EXPECT_EQ(c.tree.merges, ContractionTree::halving(k).merges) << k;
  }
}

// More lengths of one than a leaf holds cannot be halved further.
TEST(InterleavedContraction, EndsAtSingleElements) {
  const InterleavedContraction c = InterleavedContraction::halving(std::vector<int64_t>{1, 1, 1, 0}, 2);
  EXPECT_EQ(c.tree.leaf_lengths, std::vector<int32_t>{3});
  EXPECT_EQ(c.pieces.size(), 3u);
  EXPECT_TRUE(InterleavedContraction::halving(std::vector<int64_t>{0, 0}).pieces.empty());
  EXPECT_EQ(message_of([] { InterleavedContraction::halving(std::vector<int64_t>{4, -1}); }),
            "interleaved contraction: k = -1 and leaf = 128; expected k >= 0 and leaf >= 1");
}

TEST(InterleavedGemm, FollowsTheDefinition) {
  const std::vector<std::vector<int64_t>> all{{512, 512}, {256, 128, 128},    {300, 77},      {1, 500, 3}, {0, 130, 5},
                                              {64},       {2000, 1000, 1000}, {3, 2, 1, 1, 2}};
  for (const auto& lengths : all) {
    for (const int64_t m : {1, 3, 33, 70}) {
      for (const int64_t n : {1, 7, 65}) {
        const Sum sum(m, n, lengths);
        EXPECT_EQ(sum.wrong_elements(sum.run()), 0) << m << " x " << n << ", first length " << lengths[0];
      }
    }
  }
}

TEST(InterleavedGemm, TakesEveryDtypeTransposeAndGap) {
  const std::vector<Case> cases{
      {.dtypes = {DType::bf16}, .c = DType::bf16}, {.dtypes = {DType::bf16}, .c = DType::f32},
      {.dtypes = {DType::f16}, .c = DType::f16},   {.dtypes = {DType::f64}, .c = DType::f64},
      {.dtypes = {DType::f32, DType::bf16}},       {.dtypes = {DType::f32, DType::f64}, .c = DType::f64}};
  for (Case with : cases) {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        with.a_transposed = a, with.b_transposed = b, with.gap = a != b ? 3 : 0;
        const Sum sum(37, 50, {150, 90, 33}, with);
        for (const CpuTarget target : {CpuTarget::avx2, without_dots(cpu_target()), cpu_target()})
          EXPECT_EQ(sum.wrong_elements(sum.run({.target = target})), 0)
              << name_of(target) << " " << name_of(with.dtypes[0]) << a << b;
      }
    }
  }
}

// Halves of all lengths, as two ranks hold them, whose f32 results are added.
TEST(InterleavedGemm, ValuesOfHalvesCombineToThoseOfTheWhole) {
  const Sum whole(20, 30, {512, 256, 256});
  const Matrix all = whole.run();
  Matrix parts[] = {Matrix(20, 30, DType::f32, 1), Matrix(20, 30, DType::f32, 1)};
  for (int64_t half = 0; half < 2; ++half) {
    std::vector<GemmSource> sources = whole.sources();
    for (GemmSource& s : sources) {
      s.k /= 2;
      s.a.data = static_cast<const std::byte*>(s.a.data) + half * s.k * s.a.column_stride * 4;
      s.b.data = static_cast<const std::byte*>(s.b.data) + half * s.k * s.b.row_stride * 4;
    }
    interleaved_gemm(20, 30, sources, parts[half].result());
  }
  for (int64_t i = 0; i < 20; ++i) {
    for (int64_t j = 0; j < 30; ++j)
      EXPECT_EQ(static_cast<float>(all(i, j)), static_cast<float>(parts[0](i, j)) + static_cast<float>(parts[1](i, j)));
  }
}

TEST(InterleavedGemm, HasTheSameBitsOnAnyNumberOfThreads) {
  const Sum sum(150, 200, {700, 350, 350});
  ThreadPool one(1), three(3);
  EXPECT_TRUE(gemm_test::same_bits(sum.run({.pool = &one}), sum.run({.pool = &three})));
}

TEST(InterleavedGemm, ProducerAndConsumerSeeTheFirstOperandAndTheResult) {
  for (const bool a_transposed : {false, true}) {
    for (const int64_t n : {3, 65}) {
      const Sum sum(70, n, {150, 90}, {.a_transposed = a_transposed});
      const Matrix expected = sum.run();
      std::vector<GemmSource> sources = sum.sources();
      sources[0].a.data = nullptr;
      const auto make = [&](const GemmOperandBlock& block) {
        for (int64_t i = 0; i < block.rows; ++i) {
          for (int64_t k = 0; k < block.length; ++k)
            static_cast<float*>(block.data)[i * block.row_stride + k * block.column_stride] =
                static_cast<float>(sum.a[0](block.first_row + i, block.first_k + k));
        }
      };
      std::mutex mutex;
      Matrix seen(70, n, DType::f32, 9);
      const auto take = [&](const GemmBlock& block) {
        const std::lock_guard lock(mutex);
        for (int64_t i = 0; i < block.rows; ++i)
          std::memcpy(seen.at((block.first_row + i) * n + block.first_column),
                      static_cast<float*>(block.data) + i * block.row_stride, static_cast<size_t>(block.columns) * 4);
      };
      const GemmProducer producer(make);
      const GemmConsumer consumer(take);
      interleaved_gemm(70, n, sources, {nullptr, DType::f32, n}, {.producer = &producer, .consumer = &consumer});
      EXPECT_TRUE(gemm_test::same_bits(seen, expected)) << a_transposed << " " << n;
    }
  }
}

TEST(InterleavedGemm, OfNothingIsTheIdentityOfASum) {
  const Sum sum(2, 3, {0, 0});
  const Matrix c = sum.run();
  for (int64_t i = 0; i < 6; ++i) EXPECT_TRUE(c(0, i) == 0.0 && std::signbit(c(0, i)));
}

TEST(InterleavedGemm, RefusesWrongArguments) {
  float x[4] = {};
  const GemmSource good{{x, DType::f32, 2, 1}, {x, DType::f32, 2, 1}, 2};
  GemmSource bad = good;
  bad.a.dtype = DType::i32;
  EXPECT_EQ(message_of([&] { interleaved_gemm(2, 2, {}, {x, DType::f32, 2}); }),
            "interleaved_gemm: m = 2, n = 2, 0 sources; sizes must not be negative, and there must be a source");
  EXPECT_EQ(message_of([&] { interleaved_gemm(2, 2, std::span(&bad, 1), {x, DType::f32, 2}); }),
            "gemm: a is i32; expected f64, f32, bf16 or f16");
  EXPECT_EQ(message_of([&] { interleaved_gemm(2, 2, std::span(&good, 1), {nullptr, DType::f32, 2}); }),
            "interleaved_gemm: c has no memory; give GemmOptions::consumer, which gets its blocks");
}

}  // namespace
}  // namespace tutti::codegen

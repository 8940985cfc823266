// The two forms of products with block-quantized weights have the same bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tutti/codegen/blocks/panels.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen::blocks {
namespace {

constexpr BlockFormat kFormats[] = {BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q5_0, BlockFormat::q5_1,
                                    BlockFormat::q8_0, BlockFormat::q4_k, BlockFormat::q5_k, BlockFormat::q6_k};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }

 private:
  uint64_t state_;
};

// Where the f16 of a block are.
std::vector<int64_t> places_of_halves(BlockFormat format) {
  if (format == BlockFormat::q6_k) return {208};
  const bool has_minimum = format == BlockFormat::q4_1 || format == BlockFormat::q5_1 || format == BlockFormat::q4_k ||
                           format == BlockFormat::q5_k;
  return has_minimum ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{0};
}

// Weights in a buffer of just their size, so that tools see what is read behind it, and rows of x.
struct Problem {
  Problem(BlockFormat format, int64_t m, int64_t n, int64_t blocks, uint64_t seed)
      : shape(row_of(format)), m(m), n(n), k(blocks * shape.elements), format(format) {
    Random random(seed);
    w.resize(static_cast<size_t>(n * blocks * shape.nbytes));
    for (std::byte& b : w) b = static_cast<std::byte>(seed == 0 ? 0xff : random.next() & 0xff);
    // Scales from 1/32 to 1/16 in the place of those that were drawn, which may be no numbers.
    for (int64_t block = 0; block < n * blocks; ++block)
      for (const int64_t place : places_of_halves(format)) set_half(block, place, 0x2800 | (random.next() & 0x3ff));
    for (int64_t i = 0; i < m * k; ++i)
      x.push_back(seed == 0 ? -3.0F : static_cast<float>(static_cast<int>(random.next() % 2001) - 1000) / 64);
  }

  void set_half(int64_t block, int64_t place, uint32_t bits) {
    const auto half = static_cast<uint16_t>(bits);
    std::memcpy(w.data() + block * shape.nbytes + place, &half, sizeof(half));
  }

  std::vector<float> product(Form form, ThreadPool& pool, DType x_dtype) const {
    std::vector<float> y(static_cast<size_t>(m * n), 77.0F);
    std::vector<bfloat16> narrow;
    for (const float v : x) narrow.push_back(to_bfloat16(v));
    const BlockProduct p{.format = format,
                         .m = m,
                         .n = n,
                         .k = k,
                         .x = x_dtype == DType::f32 ? static_cast<const void*>(x.data()) : narrow.data(),
                         .x_dtype = x_dtype,
                         .w = w.data(),
                         .w_stride = k / shape.elements * shape.nbytes,
                         .y = y.data(),
                         .y_dtype = DType::f32};
    multiply({&p, 1}, form, pool);
    return y;
  }

  const BlockFormatRow& shape;
  int64_t m, n, k;
  BlockFormat format;
  std::vector<std::byte> w;
  std::vector<float> x;
};

void expect_same_bits(const Problem& problem, DType x_dtype = DType::f32) {
  static ThreadPool one(1), two(2);
  const std::vector<float> narrow = problem.product(Form::narrow, one, x_dtype);
  const std::vector<float> wide = problem.product(Form::wide, two, x_dtype);
  for (size_t i = 0; i < narrow.size(); ++i) {
    const bool is_same = std::isnan(narrow[i]) ? std::isnan(wide[i])
                                               : std::bit_cast<uint32_t>(narrow[i]) == std::bit_cast<uint32_t>(wide[i]);
    ASSERT_TRUE(is_same) << problem.shape.name << " m " << problem.m << " n " << problem.n << " k " << problem.k
                         << " at " << i << ": " << wide[i] << " instead of " << narrow[i];
  }
}

class BlockForms : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu_target() < CpuTarget::avx512vnni) GTEST_SKIP() << "there is one form for " << name_of(cpu_target());
  }
};

TEST_F(BlockForms, HaveTheSameBitsForAnySizes) {
  for (const BlockFormat format : kFormats)
    for (int64_t m = 1; m <= 20; ++m)
      for (const int64_t n : {1, 7, 8, 17, 40})
        for (const int64_t blocks : {1, 2, 5, 9, 17})
          expect_same_bits({format, m, n, blocks, static_cast<uint64_t>(m + 100 * n + 10000 * blocks)},
                           m % 2 == 0 ? DType::f32 : DType::bf16);
}

TEST_F(BlockForms, HaveTheSameBitsForAnyCodes) {
  for (const BlockFormat format : kFormats)
    for (uint64_t seed = 0; seed < 50; ++seed)
      for (const int64_t m : {1, 2, 3, 4, 12})
        for (const DType x_dtype : {DType::f32, DType::bf16}) expect_same_bits({format, m, 16, 4, seed}, x_dtype);
}

// Columns enough for each thread to have several panels.
TEST_F(BlockForms, HaveTheSameBitsOnTwoThreads) {
  ThreadPool one(1), two(2);
  for (const BlockFormat format : kFormats)
    for (const int64_t m : {1, 3, 5, 40})
      for (const DType x_dtype : {DType::f32, DType::bf16}) {
        const Problem problem(format, m, 523, 8, 11);
        for (const Form form : {Form::narrow, Form::wide}) {
          const std::vector<float> a = problem.product(form, one, x_dtype), b = problem.product(form, two, x_dtype);
          ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
              << problem.shape.name << " m " << m << " " << name_of(x_dtype);
        }
        expect_same_bits(problem, x_dtype);
      }
}

TEST_F(BlockForms, HaveTheSameBitsForScalesOfEveryKind) {
  const uint32_t scales[] = {0x0001, 0x83ff, 0x0000, 0x8000, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3c00};
  for (const BlockFormat format : kFormats)
    for (const int64_t m : {1, 4, 5, 9})
      for (const int64_t place : places_of_halves(format)) {
        Problem problem(format, m, std::ssize(scales), 3, 5);
        for (int64_t row = 0; row < std::ssize(scales); ++row)
          problem.set_half(3 * row + row % 3, place, scales[static_cast<size_t>(row)]);
        expect_same_bits(problem);
        problem.x[17] = INFINITY;
        expect_same_bits(problem);
      }
}

}  // namespace
}  // namespace tutti::codegen::blocks

// Products with codes against chains of std::fma in the tree of a contraction, with codes that end where memory does.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "tutti/codegen/codes/scaled_product.h"
#include "tutti/codegen/codes/weight_only_product.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Bytes whose last one is followed by a page that nothing may read.
class BytesBeforeAHole {
 public:
  explicit BytesBeforeAHole(int64_t nbytes) : page_(sysconf(_SC_PAGESIZE)) {
    pages_ = (nbytes + page_ - 1) / page_;
    memory_ = static_cast<uint8_t*>(mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(mprotect(memory_ + pages_ * page_, static_cast<size_t>(page_), PROT_NONE), 0);
    first_ = memory_ + pages_ * page_ - nbytes;
  }
  ~BytesBeforeAHole() { munmap(memory_, size()); }
  BytesBeforeAHole(const BytesBeforeAHole&) = delete;
  BytesBeforeAHole& operator=(const BytesBeforeAHole&) = delete;
  uint8_t* data() const { return first_; }

 private:
  size_t size() const { return static_cast<size_t>((pages_ + 1) * page_); }
  int64_t page_, pages_;
  uint8_t *memory_, *first_;
};

class Random {
 public:
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float number() { return static_cast<float>(static_cast<int>(next() % 2001) - 1000) / 64; }

 private:
  uint64_t state_ = 7;
};

// The sum of term(p) of [begin, end): halves until 128 are left.
using Factors = std::function<std::pair<float, float>(int64_t)>;
float sum_of(int64_t begin, int64_t end, const Factors& factors) {
  if (end - begin > kContractionLeaf) {
    const int64_t middle = begin + (end - begin + 1) / 2;
    return sum_of(begin, middle, factors) + sum_of(middle, end, factors);
  }
  float sum = -0.0F;
  for (int64_t p = begin; p < end; ++p) sum = std::fma(factors(p).first, factors(p).second, sum);
  return sum;
}

constexpr int64_t kSizes[] = {1, 8, 63, 65, 128, 129, 300, 576, 1032, 1376, 4864};
constexpr int64_t kColumns[] = {1, 7, 17, 64, 83};

TEST(CodeProducts, HaveTheChainsOfTheTreeForAnySizes) {
  ThreadPool pool(2);
  Random random;
  for (const int64_t k : kSizes)
    for (const int64_t n : kColumns) {
      const bool is_long = k * n > 20000;
      for (const int64_t m : is_long ? std::vector<int64_t>{1, 7} : std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
        std::vector<float> x(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n), 77.0F);
        for (float& v : x) v = random.number();
        const BytesBeforeAHole w(n * k);
        for (int64_t i = 0; i < n * k; ++i) w.data()[i] = static_cast<uint8_t>(random.next());
        const float scale = 0.25F;
        WeightOnlyProduct p{.m = m,
                            .n = n,
                            .k = k,
                            .x = x.data(),
                            .x_dtype = DType::f32,
                            .w = reinterpret_cast<const std::byte*>(w.data()),
                            .w_stride = k,
                            .scale = {&scale, 0},
                            .y = y.data(),
                            .y_dtype = DType::f32};
        const auto expect = [&](const char* what, const std::function<float(int64_t, int64_t)>& expected) {
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j)
              ASSERT_EQ(std::bit_cast<uint32_t>(y[static_cast<size_t>(i * n + j)]),
                        std::bit_cast<uint32_t>(expected(i, j)))
                  << what << " m " << m << " n " << n << " k " << k << " at " << i << ", " << j;
        };
        const auto x_at = [&](int64_t i, int64_t e) { return x[static_cast<size_t>(i * k + e)]; };
        weight_only_product(p, pool);
        expect("bytes", [&](int64_t i, int64_t j) {
          return scale * sum_of(0, k, [&](int64_t e) {
                   return std::pair{x_at(i, e), static_cast<float>(static_cast<int8_t>(w.data()[j * k + e]))};
                 });
        });
        if (k % 8 != 0) continue;
        // Rows of half as many bytes, at the end of the same memory.
        const int64_t groups = k / 8;
        std::vector<float> scales(static_cast<size_t>(n * groups)), minima(scales.size());
        for (float& v : scales) v = random.number();
        for (float& v : minima) v = random.number();
        const uint8_t* codes = w.data() + n * k / 2;
        p.w = reinterpret_cast<const std::byte*>(codes);
        p.w_stride = k / 2, p.has_nibbles = true, p.group = 8;
        p.scale = {scales.data(), 1}, p.minimum = minima.data();
        weight_only_product(p, pool);
        expect("nibbles", [&](int64_t i, int64_t j) {
          return sum_of(0, k, [&](int64_t e) {
            const int byte = codes[(j * k + e) / 2], code = e % 2 ? byte >> 4 : byte & 15;
            const auto at = static_cast<size_t>(j * groups + e / 8);
            return std::pair{x_at(i, e), std::fma(static_cast<float>(code), scales[at], minima[at])};
          });
        });
      }
    }
}

TEST(CodeProducts, DecodeEveryCodeOfFp8InEveryPlace) {
  ThreadPool pool(2);
  Random random;
  const float one = 1;
  for (const int64_t k : kSizes)
    for (const int64_t n : kColumns)
      for (const int64_t m : {1, 2, 4, 6, 8, 9}) {
        if (k * n > 20000 && m > 1) continue;
        const BytesBeforeAHole w(n * k);
        std::vector<uint8_t> x(static_cast<size_t>(m * k));
        for (uint8_t& code : x) code = static_cast<uint8_t>(random.next() % 127 | (random.next() % 2) << 7);
        for (int64_t i = 0; i < n * k; ++i) w.data()[i] = static_cast<uint8_t>(random.next());
        // Rows but the first two have no code that is no number.
        for (int64_t i = 2 * k; i < n * k; ++i)
          if ((w.data()[i] & 0x7f) == 0x7f) w.data()[i] ^= 1;
        std::vector<float> y(static_cast<size_t>(m * n), 77.0F);
        const ScaledWeights weights{.n = n,
                                    .w = reinterpret_cast<const std::byte*>(w.data()),
                                    .w_stride = k,
                                    .scale = {&one, 0},
                                    .y = y.data()};
        scaled_product({.m = m,
                        .k = k,
                        .codes = DType::f8e4m3fn,
                        .x = x.data(),
                        .x_dtype = DType::f8e4m3fn,
                        .x_codes = DType::f8e4m3fn,
                        .x_scale = {&one, 0},
                        .y_dtype = DType::f32,
                        .weights = {&weights, 1}},
                       pool);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            const float expected = sum_of(0, k, [&](int64_t e) {
              return std::pair{to_float(float8_e4m3fn{x[static_cast<size_t>(i * k + e)]}),
                               to_float(float8_e4m3fn{w.data()[j * k + e]})};
            });
            const float found = y[static_cast<size_t>(i * n + j)];
            if (std::isnan(expected)) ASSERT_TRUE(std::isnan(found)) << "m " << m << " n " << n << " k " << k;
            else
              ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected))
                  << "m " << m << " n " << n << " k " << k << " at " << i << ", " << j;
          }
      }
}

// Sums in 64 bits. `fill` is what all codes are; without it they are drawn.
void expect_exact(DType x_codes, int32_t zero_point, int64_t m, int64_t n, int64_t k, std::optional<uint8_t> fill) {
  ThreadPool pool(2);
  Random random;
  const float one = 1;
  const BytesBeforeAHole w(n * k);
  std::vector<uint8_t> x(static_cast<size_t>(m * k));
  for (uint8_t& code : x) code = fill.value_or(static_cast<uint8_t>(random.next()));
  for (int64_t i = 0; i < n * k; ++i) w.data()[i] = fill ? 0x80 : static_cast<uint8_t>(random.next());
  std::vector<float> y(static_cast<size_t>(m * n), 77.0F);
  const ScaledWeights weights{
      .n = n, .w = reinterpret_cast<const std::byte*>(w.data()), .w_stride = k, .scale = {&one, 0}, .y = y.data()};
  scaled_product({.m = m,
                  .k = k,
                  .codes = DType::i8,
                  .x = x.data(),
                  .x_dtype = x_codes,
                  .x_codes = x_codes,
                  .x_scale = {&one, 0},
                  .x_zero_point = zero_point,
                  .y_dtype = DType::f32,
                  .weights = {&weights, 1}},
                 pool);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t e = 0; e < k; ++e) {
        const uint8_t code = x[static_cast<size_t>(i * k + e)];
        sum += ((x_codes == DType::i8 ? static_cast<int8_t>(code) : code) - zero_point) *
               static_cast<int8_t>(w.data()[j * k + e]);
      }
      ASSERT_EQ(y[static_cast<size_t>(i * n + j)], static_cast<float>(sum))
          << name_of(x_codes) << " - " << zero_point << " m " << m << " n " << n << " k " << k << " at " << i << ", "
          << j;
    }
}

TEST(CodeProducts, OfIntegersAreExactForAnySizes) {
  for (const int64_t k : {1, 3, 63, 64, 65, 127, 130, 576, 1001})
    for (const int64_t n : {1, 3, 16, 18, 35})
      for (const int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 23, 24}) {
        expect_exact(DType::i8, 0, m, n, k, {});
        expect_exact(DType::u8, static_cast<int32_t>(k % 256), m, n, k, {});
      }
}

TEST(CodeProducts, OfIntegersAreExactAtTheirBounds) {
  for (const int64_t k : {int64_t{4095}, kMostIntegerTerms})
    for (const int64_t m : {1, 4, 6, 15, 17}) {
      for (const int32_t zero_point : {-128, 0, 127}) {
        expect_exact(DType::i8, zero_point, m, 3, k, 0x80);
        expect_exact(DType::i8, zero_point, m, 3, k, 0x7f);
      }
      for (const int32_t zero_point : {0, 128, 255}) {
        expect_exact(DType::u8, zero_point, m, 3, k, 0xff);
        expect_exact(DType::u8, zero_point, m, 3, k, 0x00);
      }
    }
}

}  // namespace
}  // namespace tutti::codegen

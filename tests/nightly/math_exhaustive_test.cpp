// Every f32 argument of every unary math function against libm in double, and millions of f64 arguments against long
// double. Prints the worst argument of each: the rows of docs/math_ulp.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/codegen/support/harness.h"
#include "tests/codegen/support/math_reference.h"

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

using testing::Lanes;
using testing::MathCase;
using testing::Worst;

constexpr int64_t kBlock = 1 << 16;

Worst worse(const Worst& a, const Worst& b) { return a.ulp >= b.ulp ? a : b; }

// The worst of block(0) ... block(count - 1), over all processors.
template <class F>
Worst over_blocks(int64_t count, const F& block) {
  std::vector<std::thread> threads;
  std::vector<Worst> found(std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<int64_t> next = 0;
  for (Worst& worst : found) {
    threads.emplace_back([&] {
      for (int64_t k; (k = next++) < count;) worst = worse(worst, block(k));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::ranges::max_element(found, {}, &Worst::ulp);
}

void report(const MathCase& c, const char* type, const Worst& worst) {
  std::printf("| %s | %s | %.4f | `%a` (%.9g)", std::string(name_of(c.op)).c_str(), type, worst.ulp, worst.x, worst.x);
  if (c.binary) std::printf(", `%a` (%.9g)", worst.y, worst.y);
  std::printf(" |\n");
  std::fflush(stdout);
}

class MathExhaustive : public ::testing::TestWithParam<MathCase> {};

// One block is all bit patterns with the same upper half.
TEST_P(MathExhaustive, EveryF32ArgumentStaysWithinTheStatedError) {
  const MathCase& c = GetParam();
  if (!c.quick) return;  // functions of two arguments are sampled below
  const Worst worst = over_blocks(int64_t{1} << 16, [&](int64_t k) {
    std::vector<float> x(kBlock), out(kBlock);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = std::bit_cast<float>(static_cast<uint32_t>(k * kBlock + static_cast<int64_t>(i)));
    testing::evaluate(c.op, cpu_target(), Lanes::full, x.data(), x.data(), out.data(), kBlock);
    Worst worst_here{.ulp = 0.5};  // correctly rounded results are skipped below
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = c.quick(x[i]);
      if (std::bit_cast<uint32_t>(out[i]) == std::bit_cast<uint32_t>(static_cast<float>(want))) continue;
      const double ulp = testing::ulp_distance(out[i], want);
      if (ulp > worst_here.ulp) worst_here = {ulp, x[i]};
    }
    return worst_here;
  });
  report(c, "f32, all", worst);
  EXPECT_LE(worst.ulp, c.max_ulp_f32);
}

template <class T>
Worst worst_of_samples(const MathCase& c) {
  return over_blocks(256, [&](int64_t k) {
    auto sample = testing::math_sample<T>(c.op, kBlock, static_cast<uint64_t>(k) << 32);
    if (c.op == ScalarOp::lgamma) {  // has zeros at negative x
      for (T& x : sample.x) x = std::fabs(x);
    }
    std::vector<T> out(sample.x.size());
    testing::evaluate(c.op, cpu_target(), Lanes::full, sample.x.data(), sample.y.data(), out.data(),
                      static_cast<int64_t>(out.size()));
    return testing::worst_of(c, sample, out);
  });
}

TEST_P(MathExhaustive, ManyArgumentsStayWithinTheStatedError) {
  const MathCase& c = GetParam();
  const Worst f64 = worst_of_samples<double>(c);
  report(c, "f64", f64);
  EXPECT_LE(f64.ulp, c.max_ulp_f64);
  if (!c.binary) return;
  const Worst f32 = worst_of_samples<float>(c);
  report(c, "f32", f32);
  EXPECT_LE(f32.ulp, c.max_ulp_f32);
}

// Reports the first argument in the samples block(0) ... block(count - 1) of whose results a bit differs between
// targets.
template <class T, class Block>
void expect_same_bits(const MathCase& c, int64_t count, const Block& block) {
  std::atomic<int64_t> differ = 0;
  over_blocks(count, [&](int64_t k) {
    const testing::MathSample<T> sample = block(k);
    const auto results = [&](CpuTarget target) {
      std::vector<T> out(sample.x.size());
      testing::evaluate(c.op, target, Lanes::full, sample.x.data(), sample.y.data(), out.data(), std::ssize(out));
      return out;
    };
    const std::vector<T> first = results(testing::targets().front());
    for (const CpuTarget target : testing::targets()) {
      const std::vector<T> other = results(target);
      if (std::memcmp(first.data(), other.data(), first.size() * sizeof(T)) == 0) continue;
      const size_t i = static_cast<size_t>(
          std::ranges::mismatch(first, other, [](T a, T b) { return std::memcmp(&a, &b, sizeof(T)) == 0; }).in1 -
          first.begin());
      if (differ++ == 0)
        ADD_FAILURE() << name_of(c.op) << std::hexfloat << "(" << sample.x[i] << ", " << sample.y[i]
                      << "): " << first[i] << " and " << other[i] << " for " << name_of(target);
    }
    return Worst{};
  });
  EXPECT_EQ(differ, 0) << "blocks";
}

TEST_P(MathExhaustive, EveryTargetGivesTheSameBits) {
  const MathCase& c = GetParam();
  expect_same_bits<double>(
      c, 256, [&](int64_t k) { return testing::math_sample<double>(c.op, kBlock, static_cast<uint64_t>(k) << 32); });
  expect_same_bits<float>(c, c.quick ? int64_t{1} << 16 : 256, [&](int64_t k) {
    if (!c.quick) return testing::math_sample<float>(c.op, kBlock, static_cast<uint64_t>(k) << 32);
    testing::MathSample<float> all;
    for (int64_t i = 0; i < kBlock; ++i) all.x.push_back(std::bit_cast<float>(static_cast<uint32_t>(k * kBlock + i)));
    all.y = all.x;
    return all;
  });
}

INSTANTIATE_TEST_SUITE_P(, MathExhaustive,
                         ::testing::ValuesIn(testing::math_cases().begin(), testing::math_cases().end()),
                         [](const auto& info) { return std::string(name_of(info.param.op)); });

}  // namespace
}  // namespace tutti::codegen

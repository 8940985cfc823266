#include "tutti/codegen/combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/shm/segment.h"
#include "tutti/core/dtype.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

// All values of one call as a vector per rank; the result of combining them.
template <class T>
std::vector<T> combined(ReduceKind kind, const std::vector<std::vector<T>>& all,
                        const std::vector<double>& factors = {}) {
  std::vector<const std::byte*> inputs;
  for (const auto& values : all) inputs.push_back(reinterpret_cast<const std::byte*>(values.data()));
  std::vector<T> out(all[0].size());
  combine(kind, dtype_of<T>, inputs, factors, static_cast<int64_t>(out.size()),
          reinterpret_cast<std::byte*>(out.data()));
  return out;
}

std::vector<std::vector<float>> values_of(int ranks, int64_t count) {
  std::vector<std::vector<float>> all;
  for (int r = 0; r < ranks; ++r) all.push_back(rank_values(r, count));
  return all;
}

// The halving tree over ranks for one element, in double or integers, written as plainly as possible.
template <class V>
V tree(const std::vector<V>& values, const std::function<V(V, V)>& op, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  const size_t middle = begin + (end - begin + 1) / 2;
  const V left = tree(values, op, begin, middle);
  return op(left, tree(values, op, middle, end));
}

// Numbers of ranks at which one kernel does, and at which partial results are kept.
constexpr int kRanks[] = {1, 2, 3, 5, 8, 9, 11, 16, 17, 33, 64};

TEST(Combine, SumsInTheHalvingTreeForEveryNumberOfRanks) {
  for (int ranks = 1; ranks <= kMaxShmRanks; ++ranks) {
    EXPECT_TRUE(same_bits(combined(ReduceKind::sum, values_of(ranks, 1300)), serial_tree(ranks, 1300)))
        << ranks << " ranks";
  }
}

TEST(Combine, OfFiveIsThreePlusTwo) {
  const std::vector<std::vector<float>> values{{1e8f}, {1.0f}, {-1e8f}, {3.0f}, {0.25f}};
  EXPECT_EQ(combined(ReduceKind::sum, values)[0], ((1e8f + 1.0f) + -1e8f) + (3.0f + 0.25f));
}

TEST(Combine, MayWriteOverAnInput) {
  for (const int ranks : {2, 12}) {
    std::vector<std::vector<float>> all = values_of(ranks, 1700);
    std::vector<const std::byte*> inputs;
    for (const auto& values : all) inputs.push_back(reinterpret_cast<const std::byte*>(values.data()));
    combine(ReduceKind::sum, DType::f32, inputs, {}, 1700, reinterpret_cast<std::byte*>(all[1].data()));
    EXPECT_TRUE(same_bits(all[1], serial_tree(ranks, 1700))) << ranks << " ranks";
  }
}

TEST(Combine, KeepsNegativeZero) {
  for (const size_t ranks : {3u, 20u}) {
    EXPECT_TRUE(std::signbit(combined(ReduceKind::sum, std::vector<std::vector<float>>(ranks, {-0.0f}))[0]))
        << ranks << " ranks";
  }
}

TEST(Combine, RoundsNarrowFloatsOnceWhateverTheNumberOfRanks) {
  for (const int ranks : kRanks) {
    std::vector<std::vector<bfloat16>> narrow;
    std::vector<float> wide;
    for (int r = 0; r < ranks; ++r) {
      narrow.push_back({to_bfloat16(1.0f + 0.0078125f * static_cast<float>(r % 3))});
      wide.push_back(to_float(narrow.back()[0]));
    }
    const float sum = tree<float>(wide, [](float a, float b) { return a + b; }, 0, wide.size());
    EXPECT_EQ(combined(ReduceKind::sum, narrow)[0].bits, to_bfloat16(sum).bits) << ranks << " ranks";
    EXPECT_EQ(combined(ReduceKind::avg, narrow)[0].bits, to_bfloat16(sum / static_cast<float>(ranks)).bits)
        << ranks << " ranks";
  }
}

TEST(Combine, AveragesProductsAndExtremesOfEveryNumberOfRanks) {
  for (const int ranks : kRanks) {
    std::vector<std::vector<double>> all;
    std::vector<double> flat;
    for (int r = 0; r < ranks; ++r) flat.push_back(1.0 + 0.1 * ((r * 7) % 13)), all.push_back({flat.back()});
    const auto check = [&](ReduceKind kind, const std::function<double(double, double)>& op) {
      EXPECT_EQ(combined(kind, all)[0], tree<double>(flat, op, 0, flat.size()))
          << name_of(kind) << " of " << ranks << " ranks";
    };
    check(ReduceKind::product, [](double a, double b) { return a * b; });
    check(ReduceKind::min, [](double a, double b) { return std::min(a, b); });
    check(ReduceKind::max, [](double a, double b) { return std::max(a, b); });
    const double sum = tree<double>(flat, [](double a, double b) { return a + b; }, 0, flat.size());
    EXPECT_EQ(combined(ReduceKind::avg, all)[0], sum / ranks) << ranks << " ranks";
  }
}

// Values of all sizes: the sum of several of the largest is infinite.
template <class T>
std::vector<T> values_of_all_sizes(double largest, double smallest) {
  std::vector<double> values{0.0,      -0.0,      largest,      -largest, largest / 2, largest / 3,
                             smallest, -smallest, 3 * smallest, INFINITY, -INFINITY};
  for (int i = 0; i < 3000; ++i) values.push_back(std::sin(i + 0.5) * std::ldexp(1.0, i % 9));
  std::vector<T> narrow;
  for (const double v : values) {
    if constexpr (std::is_same_v<T, bfloat16>) narrow.push_back(to_bfloat16(static_cast<float>(v)));
    else narrow.push_back(static_cast<T>(v));
  }
  return narrow;
}

template <class T>
void expect_averages_of_equals(const std::vector<T>& values) {
  for (int ranks = 1; ranks <= kMaxShmRanks; ranks += ranks < 18 ? 1 : 13) {
    const std::vector<T> average =
        combined(ReduceKind::avg, std::vector<std::vector<T>>(static_cast<size_t>(ranks), values));
    EXPECT_EQ(std::memcmp(average.data(), values.data(), values.size() * sizeof(T)), 0)
        << ranks << " ranks of " << name_of(dtype_of<T>);
  }
}

TEST(Combine, TheAverageOfEqualFloatsIsThatFloat) {
  expect_averages_of_equals(values_of_all_sizes<float>(0x1.fffffep127, 0x1p-149));
  expect_averages_of_equals(values_of_all_sizes<double>(0x1.fffffffffffffp1023, 0x1p-1074));
  expect_averages_of_equals(values_of_all_sizes<bfloat16>(0x1.fep127, 0x1p-133));
}

TEST(Combine, AnAverageOfNanIsNan) {
  for (const size_t ranks : {1u, 2u, 3u, 9u, 40u}) {
    std::vector<std::vector<float>> all(ranks, {1.0f, NAN});
    all[ranks / 2][0] = NAN;
    EXPECT_TRUE(std::isnan(combined(ReduceKind::avg, all)[0]) && std::isnan(combined(ReduceKind::avg, all)[1]))
        << ranks << " ranks";
  }
}

TEST(Combine, ZerosOfBothSignsAverageToTheSignOfTheirSum) {
  for (const size_t ranks : {2u, 3u, 9u}) {
    std::vector<std::vector<float>> all(ranks, {-0.0f});
    all[1] = {0.0f};
    EXPECT_FALSE(std::signbit(combined(ReduceKind::avg, all)[0])) << ranks << " ranks";
  }
}

// What hosts reduce on their own and together is what all ranks reduce at once, whatever the nodes of the tree are.
TEST(Combine, PartsOfHostsGiveWhatAllRanksGive) {
  for (const auto& [hosts, per_host] : {std::pair{2, 3}, {2, 4}, {4, 2}, {2, 8}, {2, 11}, {8, 3}, {16, 2}, {16, 4}}) {
    const int ranks = hosts * per_host;
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg, ReduceKind::product, ReduceKind::max}) {
      std::vector<std::vector<float>> all = values_of(ranks, 2100);
      const std::vector<float> equal = values_of_all_sizes<float>(0x1.fffffep127, 0x1p-149);
      for (auto& values : all) std::copy_n(equal.begin(), 1000, values.begin());
      std::vector<std::vector<std::byte>> parts;
      std::vector<const std::byte*> of_hosts;
      for (int h = 0; h < hosts; ++h) {
        std::vector<const std::byte*> inputs;
        for (int j = 0; j < per_host; ++j)
          inputs.push_back(reinterpret_cast<const std::byte*>(all[static_cast<size_t>(h * per_host + j)].data()));
        parts.emplace_back(static_cast<size_t>(2100 * part_bytes(kind, DType::f32)));
        combine_part(kind, DType::f32, inputs, {}, 2100, parts.back().data());
      }
      for (const auto& part : parts) of_hosts.push_back(part.data());
      std::vector<float> out(2100);
      combine_parts(kind, DType::f32, of_hosts, ranks, 2100, reinterpret_cast<std::byte*>(out.data()));
      EXPECT_TRUE(same_bits(out, combined(kind, all))) << name_of(kind) << " of " << hosts << " x " << per_host;
    }
  }
}

TEST(Combine, ScalesEveryRankByItsOwnFactor) {
  for (const int ranks : kRanks) {
    std::vector<std::vector<float>> all;
    std::vector<double> factors;
    std::vector<float> scaled;
    for (int r = 0; r < ranks; ++r) {
      all.push_back({1.0f / static_cast<float>(r + 3)});
      factors.push_back(0.3 * (r + 1));
      scaled.push_back(all.back()[0] * static_cast<float>(factors.back()));
    }
    const float sum = tree<float>(scaled, [](float a, float b) { return a + b; }, 0, scaled.size());
    EXPECT_EQ(combined(ReduceKind::premul_sum, all, factors)[0], sum) << ranks << " ranks";
  }
}

TEST(Combine, IntegersWrapAndTheirAverageTruncates) {
  for (const int ranks : kRanks) {
    std::vector<std::vector<int64_t>> all;
    uint64_t sum = 0;
    for (int r = 0; r < ranks; ++r) {
      all.push_back({r % 2 ? INT64_MAX - r : INT64_MIN + 3 * r, -7 - r});
      sum += static_cast<uint64_t>(all.back()[0]);
    }
    EXPECT_EQ(combined(ReduceKind::sum, all)[0], static_cast<int64_t>(sum)) << ranks << " ranks";
    int64_t small = 0;
    for (int r = 0; r < ranks; ++r) small += -7 - r;
    EXPECT_EQ(combined(ReduceKind::avg, all)[1], small / ranks) << ranks << " ranks";
  }
}

TEST(Combine, NanWinsExtremes) {
  for (const size_t ranks : {2u, 9u, 40u}) {
    std::vector<std::vector<float>> all(ranks, {1.0f});
    all[ranks - 1] = {NAN};
    EXPECT_TRUE(std::isnan(combined(ReduceKind::max, all)[0])) << ranks << " ranks";
    EXPECT_TRUE(std::isnan(combined(ReduceKind::min, all)[0])) << ranks << " ranks";
  }
}

TEST(Combine, BitsAndBooleans) {
  for (const int ranks : kRanks) {
    std::vector<std::vector<uint8_t>> all;
    uint8_t conjunction = 0xff, disjunction = 0, difference = 0;
    for (int r = 0; r < ranks; ++r) {
      const uint8_t value = static_cast<uint8_t>(0xf0 | (r * 37));
      all.push_back({value});
      conjunction &= value, disjunction |= value, difference ^= value;
    }
    EXPECT_EQ(combined(ReduceKind::band, all)[0], conjunction) << ranks << " ranks";
    EXPECT_EQ(combined(ReduceKind::bor, all)[0], disjunction) << ranks << " ranks";
    EXPECT_EQ(combined(ReduceKind::bxor, all)[0], difference) << ranks << " ranks";
  }
}

// Any bits as values of a dtype, and the bits of what they give; of NaNs only that they are NaNs.
std::vector<std::byte> any_bits(DType dtype, int64_t count, uint64_t& random) {
  std::vector<std::byte> bits(static_cast<size_t>(count * itemsize(dtype)));
  for (std::byte& b : bits) {
    random = hash64(&random, sizeof random, 1);
    b = static_cast<std::byte>(random & (dtype == DType::boolean ? 1 : 0xff));
  }
  return bits;
}
uint64_t digest_of(DType dtype, const std::vector<std::byte>& values, uint64_t seed) {
  std::vector<std::byte> same = values;
  const auto size = static_cast<size_t>(itemsize(dtype));
  for (size_t at = 0; at < same.size(); at += size) {
    if (is_floating(dtype) && std::isnan(load_as_double(&same[at], dtype))) std::memset(&same[at], 0xff, size);
  }
  return hash64(same.data(), same.size(), seed);
}

// The runtime of packages has loops of its own for these reductions (comm/runtime_only/combine.cpp), and this file is
// compiled with each of them: the digest is that of both.
TEST(Combine, AnyBitsOfAllDtypesAndReductionsHaveOneDigest) {
  uint64_t random = 1, digest = 0;
  for (int k = 0; k < kNumReduceKinds; ++k) {
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto kind = static_cast<ReduceKind>(k);
      const auto dtype = static_cast<DType>(d);
      if (!why_not_reducible(kind, dtype).empty()) continue;
      for (const int ranks : kRanks) {
        constexpr int64_t kCount = 1100;
        std::vector<std::vector<std::byte>> all;
        std::vector<const std::byte*> inputs;
        std::vector<double> factors;
        for (int r = 0; r < ranks; ++r) {
          // Every third rank has the values of the first, so that extremes and averages meet equal ones.
          all.push_back(r % 3 == 1 ? all[0] : any_bits(dtype, kCount, random));
          if (kind == ReduceKind::premul_sum) factors.push_back(0.3 * (r + 1));
        }
        for (const auto& values : all) inputs.push_back(values.data());
        std::vector<std::byte> out(all[0].size());
        combine(kind, dtype, inputs, factors, kCount, out.data());
        digest = digest_of(dtype, out, digest);
      }
    }
  }
  EXPECT_EQ(digest, 7755445951931072446u);
}

}  // namespace
}  // namespace tutti::comm

// Dot products of unpacked blocks have the same bits whatever multiplies them.
#include "tutti/codegen/blocks/block_dots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen::blocks {
namespace {

constexpr int kRows = 4, kCount = 5;

template <class F, class Panel>
class Blocks {
 public:
  static constexpr int64_t kElements = std::is_same_v<Panel, SmallPanel> ? kSmallBlock : kSuperBlock;

  explicit Blocks(uint32_t seed) : state_(seed), panels_(kCount) {
    std::vector<Byte> bytes(static_cast<size_t>(kPanelRows * kCount * F::kBytes));
    for (Byte& b : bytes) b = seed == 0 ? 0xff : static_cast<Byte>(random());
    for (Byte* block = bytes.data(); block < bytes.data() + bytes.size(); block += F::kBytes) make_ordinary(block);
    for (int64_t block = 0; block < kCount; ++block) {
      const Byte* rows[kPanelRows];
      for (int64_t r = 0; r < kPanelRows; ++r) rows[r] = bytes.data() + (r * kCount + block) * F::kBytes;
      unpack<F>(rows, panels_[static_cast<size_t>(block)]);
    }
    for (int64_t i = 0; i < kRows * kCount * kElements; ++i) codes_.push_back(seed == 0 ? int8_t{-127} : code());
    for (int64_t i = 0; i < kRows * kCount * kElements / 16; ++i) sums_.push_back(static_cast<int16_t>(16 * code()));
    for (int64_t i = 0; i < kRows * kCount; ++i) scales_.push_back(static_cast<float>(code()) / 64);
  }

  template <Dots kDots, int kX>
  std::vector<float> chains() const {
    __m256 sums[kX];
    for (__m256& s : sums) s = _mm256_set1_ps(-0.0F);
    add_blocks<F, kDots>(panels_.data(), kCount, {codes_.data(), scales_.data(), sums_.data()}, sums);
    std::vector<float> all(8 * kX);
    std::memcpy(all.data(), sums, sizeof(sums));
    return all;
  }

 private:
  uint32_t random() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  // Scales from 1/32 to 1/16 in the place of those that were drawn, which may be no numbers.
  void make_ordinary(Byte* block) {
    const auto set = [&](Byte* to) {
      const auto half = static_cast<uint16_t>(0x2800 | (random() & 0x3ff));
      std::memcpy(to, &half, sizeof(half));
    };
    if constexpr (std::is_same_v<Panel, SmallPanel>) set(block);
    else set(const_cast<Byte*>(F::scale(block)));
    if constexpr (F::kHasMinimum) set(block + 2);
  }
  int8_t code() { return static_cast<int8_t>(static_cast<int>(random() % 255) - 127); }

  uint64_t state_;
  std::vector<Panel> panels_;
  std::vector<int8_t> codes_;
  std::vector<int16_t> sums_;
  std::vector<float> scales_;
};

void expect_equal(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  for (const float v : a) EXPECT_TRUE(std::isfinite(v));
}

template <class F, class Panel>
void expect_same_bits() {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Blocks<F, Panel> blocks(seed);
    expect_equal(blocks.template chains<Dots::steps, 1>(), blocks.template chains<Dots::pairs, 1>());
    expect_equal(blocks.template chains<Dots::steps, kRows>(), blocks.template chains<Dots::pairs, kRows>());
    if (cpu_target() < CpuTarget::avx512vnni) continue;
    expect_equal(blocks.template chains<Dots::units, 1>(), blocks.template chains<Dots::pairs, 1>());
    expect_equal(blocks.template chains<Dots::units, kRows>(), blocks.template chains<Dots::pairs, kRows>());
  }
}

TEST(BlockDots, HaveTheSameBitsOnDotUnits) {
  expect_same_bits<Q4_0, SmallPanel>();
  expect_same_bits<Q4_1, SmallPanel>();
  expect_same_bits<Q5_0, SmallPanel>();
  expect_same_bits<Q5_1, SmallPanel>();
  expect_same_bits<Q8_0, SmallPanel>();
  expect_same_bits<Q4_K, SuperPanel>();
  expect_same_bits<Q5_K, SuperPanel>();
  expect_same_bits<Q6_K, SuperPanel>();
}

}  // namespace
}  // namespace tutti::codegen::blocks

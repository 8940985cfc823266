// The definition of a product with quantized weights, in plain loops: layouts and formulas of ggml's blocks, sums of
// numerics contract N12.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/core/error.h"
#include "tutti/ops/quantized/blocks.h"

namespace tutti::quantized {
namespace {

constexpr int64_t kLeaf = 8;  // blocks

int byte_at(const std::byte* bytes, int i) { return std::to_integer<int>(bytes[i]); }
int signed_at(const std::byte* bytes, int i) { return std::to_integer<int8_t>(bytes[i]); }
float half_at(const std::byte* bytes, int i) {
  return to_float(float16{static_cast<uint16_t>(byte_at(bytes, i) | byte_at(bytes, i + 1) << 8)});
}
// Element e of 32 whose low nibbles are the first 16.
int nibble(const std::byte* bytes, int e) { return e < 16 ? byte_at(bytes, e) & 15 : byte_at(bytes, e - 16) >> 4; }
int bit(const std::byte* bytes, int e) { return byte_at(bytes, e / 8) >> e % 8 & 1; }

PlainBlock small_block(BlockFormat format, const std::byte* b) {
  PlainBlock block{
      .d = half_at(b, 0), .code = {}, .scale = std::vector<int>(32, 1), .minimum = std::vector<int>(32, 1)};
  block.adds_minimum = format == BlockFormat::q4_1 || format == BlockFormat::q5_1;
  if (block.adds_minimum) block.m = half_at(b, 2);
  for (int e = 0; e < 32; ++e) {
    switch (format) {
      case BlockFormat::q4_0:
        block.code.push_back(nibble(b + 2, e) - 8);
        break;
      case BlockFormat::q4_1:
        block.code.push_back(nibble(b + 4, e));
        break;
      case BlockFormat::q5_0:
        block.code.push_back(nibble(b + 6, e) + 16 * bit(b + 2, e) - 16);
        break;
      case BlockFormat::q5_1:
        block.code.push_back(nibble(b + 8, e) + 16 * bit(b + 4, e));
        break;
      default:
        block.code.push_back(signed_at(b + 2, e));
    }
  }
  return block;
}

// The 6 bits of scale j, and of minimum j, among the 12 bytes.
int packed_scale(const std::byte* p, int j) {
  return j < 4 ? byte_at(p, j) & 63 : (byte_at(p, j + 4) & 15) | byte_at(p, j - 4) >> 6 << 4;
}
int packed_minimum(const std::byte* p, int j) {
  return j < 4 ? byte_at(p, j + 4) & 63 : byte_at(p, j + 4) >> 4 | byte_at(p, j) >> 6 << 4;
}

PlainBlock super_block(BlockFormat format, const std::byte* b) {
  PlainBlock block;
  const bool is_q6 = format == BlockFormat::q6_k;
  block.subtracts_minimum = !is_q6;
  block.d = half_at(b, is_q6 ? 208 : 0);
  if (!is_q6) block.m = half_at(b, 2);
  for (int e = 0; e < 256; ++e) {
    if (is_q6) {
      const int half = e / 128, quarter = e / 32 % 4, l = e % 32;
      const int low = byte_at(b, 64 * half + l + 32 * (quarter % 2)), high = byte_at(b, 128 + 32 * half + l);
      block.code.push_back(((quarter < 2 ? low & 15 : low >> 4) | (high >> 2 * quarter & 3) << 4) - 32);
      block.scale.push_back(signed_at(b, 192 + e / 16));
      block.minimum.push_back(0);
      continue;
    }
    const int k = e / 64, l = e % 32, first = format == BlockFormat::q4_k ? 16 : 48;
    const int byte = byte_at(b, first + 32 * k + l);
    const int fifth = format == BlockFormat::q4_k ? 0 : byte_at(b, 16 + l) >> e / 32 & 1;
    block.code.push_back((e / 32 % 2 == 0 ? byte & 15 : byte >> 4) + 16 * fifth);
    block.scale.push_back(packed_scale(b + 4, e / 32));
    block.minimum.push_back(packed_minimum(b + 4, e / 32));
  }
  return block;
}

class Sum {
 public:
  Sum(BlockFormat format, std::span<const std::byte> row, std::span<const float> x)
      : format_(format), row_(row), x_(x), shape_(row_of(format)) {}

  float over(int64_t begin, int64_t end) const {
    if (end - begin > kLeaf) {
      const int64_t middle = begin + (end - begin + 1) / 2;
      return over(begin, middle) + over(middle, end);
    }
    float sum = -0.0F;
    for (int64_t b = begin; b < end; ++b) add(b, sum);
    return sum;
  }

 private:
  void add(int64_t index, float& sum) const {
    const PlainBlock w = plain_block(format_, row_.data() + index * shape_.nbytes);
    const auto elements = static_cast<size_t>(shape_.elements);
    const PlainActivations x = plain_activations(x_.subspan(static_cast<size_t>(index) * elements, elements));
    int32_t products = 0, minima = 0;
    for (size_t e = 0; e < elements; ++e) {
      products += w.scale[e] * w.code[e] * x.code[e];
      minima += w.minimum[e] * x.code[e];
    }
    sum = std::fma(w.d * x.d, static_cast<float>(products), sum);
    if (w.adds_minimum) sum = std::fma(w.m * x.d, static_cast<float>(minima), sum);
    if (w.subtracts_minimum) sum = std::fma(-(w.m * x.d), static_cast<float>(minima), sum);
  }

  const BlockFormat format_;
  const std::span<const std::byte> row_;
  const std::span<const float> x_;
  const BlockFormatRow& shape_;
};

}  // namespace

PlainBlock plain_block(BlockFormat format, const std::byte* bytes) {
  return row_of(format).elements == 32 ? small_block(format, bytes) : super_block(format, bytes);
}

PlainActivations plain_activations(std::span<const float> x) {
  PlainActivations block{.code = std::vector<int>(x.size(), 0)};
  if (!std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); })) {
    block.d = std::numeric_limits<float>::quiet_NaN();
    return block;
  }
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  const bool is_small = x.size() == 32;
  const float d = is_small ? largest / 127.0F : 1.0F / (127.0F / largest);
  if (!std::isnormal(d)) return block;
  block.d = d;
  const float inverse = is_small ? 1.0F / d : 127.0F / largest;
  for (size_t i = 0; i < x.size(); ++i) block.code[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  return block;
}

float plain_product(BlockFormat format, std::span<const std::byte> row, std::span<const float> x) {
  return Sum(format, row, x).over(0, std::ssize(x) / row_of(format).elements);
}

}  // namespace tutti::quantized

#include "tutti/core/block_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tutti/core/block_encode.h"
#include "tutti/core/error.h"

// In the layouts below, element e of a block of K elements is described; bytes are those of the block in order.

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks hold little-endian numbers");

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float half_at(const std::byte* bytes) { return to_float(float16{load<uint16_t>(bytes)}); }
int low_nibble(std::byte b) { return std::to_integer<int>(b) & 15; }
int high_nibble(std::byte b) { return std::to_integer<int>(b) >> 4; }
int bit_at(uint32_t bits, int at) { return static_cast<int>(bits >> at & 1U); }

template <class T>
void decode_plain(const std::byte* block, float* out) {
  if constexpr (std::is_same_v<T, float>) *out = load<float>(block);
  else *out = to_float(load<T>(block));
}

// Bytes 0-1: d. Bytes 2-17: codes, of element j in the low and of element j + 16 in the high half of byte 2 + j.
void decode_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(low_nibble(block[2 + j]) - 8) * d;
    out[j + 16] = static_cast<float>(high_nibble(block[2 + j]) - 8) * d;
  }
}

// Bytes 0-1: d. Bytes 2-3: m. Bytes 4-19: codes as in Q4_0.
void decode_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(low_nibble(block[4 + j])) * d + m;
    out[j + 16] = static_cast<float>(high_nibble(block[4 + j])) * d + m;
  }
}

// Bytes 0-1: d. Bytes 2-5: the fifth bits, bit e of element e. Bytes 6-21: the other four bits as in Q4_0.
void decode_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  const auto high = load<uint32_t>(block + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((low_nibble(block[6 + j]) | bit_at(high, j) << 4) - 16) * d;
    out[j + 16] = static_cast<float>((high_nibble(block[6 + j]) | bit_at(high, j + 16) << 4) - 16) * d;
  }
}

// Bytes 0-1: d. Bytes 2-3: m. Bytes 4-23: codes as in Q5_0.
void decode_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  const auto high = load<uint32_t>(block + 4);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(low_nibble(block[8 + j]) | bit_at(high, j) << 4) * d + m;
    out[j + 16] = static_cast<float>(high_nibble(block[8 + j]) | bit_at(high, j + 16) << 4) * d + m;
  }
}

// Bytes 0-1: d. Bytes 2-33: codes, signed bytes.
void decode_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(std::to_integer<int8_t>(block[2 + j])) * d;
}

struct ScaleAndMin {
  float scale, min;
};

// The 6-bit scale and minimum of sub-block `j` among the 12 bytes that pack those of 8: the low bits of the first four
// scales, of the first four minima, and the nibbles of the last four pairs, whose upper bits are on top of the others.
ScaleAndMin scale_and_min(const std::byte* packed, int j) {
  const auto byte = [&](int i) { return std::to_integer<int>(packed[i]); };
  if (j < 4) return {static_cast<float>(byte(j) & 63), static_cast<float>(byte(j + 4) & 63)};
  return {static_cast<float>((byte(j + 4) & 15) | (byte(j - 4) >> 6) << 4),
          static_cast<float>(byte(j + 4) >> 4 | (byte(j) >> 6) << 4)};
}

// Bytes 0-1: d. Bytes 2-3: dmin. Bytes 4-15: scales and minima of the sub-blocks of 32. Bytes 16-143: codes; byte
// 16 + 32 k + l has those of elements 64 k + l (low) and 64 k + 32 + l (high).
void decode_q4_k(const std::byte* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  for (int k = 0; k < 4; ++k) {
    const ScaleAndMin low = scale_and_min(block + 4, 2 * k), high = scale_and_min(block + 4, 2 * k + 1);
    const float low_d = d * low.scale, low_m = dmin * low.min, high_d = d * high.scale, high_m = dmin * high.min;
    for (int l = 0; l < 32; ++l) {
      const std::byte code = block[16 + 32 * k + l];
      out[64 * k + l] = low_d * static_cast<float>(low_nibble(code)) - low_m;
      out[64 * k + 32 + l] = high_d * static_cast<float>(high_nibble(code)) - high_m;
    }
  }
}

// Bytes 0-15 as in Q4_K. Bytes 16-47: the fifth bits; bits 2 k and 2 k + 1 of byte 16 + l are those of elements
// 64 k + l and 64 k + 32 + l. Bytes 48-175: the other four bits as in Q4_K.
void decode_q5_k(const std::byte* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  for (int k = 0; k < 4; ++k) {
    const ScaleAndMin low = scale_and_min(block + 4, 2 * k), high = scale_and_min(block + 4, 2 * k + 1);
    const float low_d = d * low.scale, low_m = dmin * low.min, high_d = d * high.scale, high_m = dmin * high.min;
    for (int l = 0; l < 32; ++l) {
      const auto fifth = std::to_integer<uint32_t>(block[16 + l]);
      const std::byte code = block[48 + 32 * k + l];
      out[64 * k + l] = low_d * static_cast<float>(low_nibble(code) | bit_at(fifth, 2 * k) << 4) - low_m;
      out[64 * k + 32 + l] = high_d * static_cast<float>(high_nibble(code) | bit_at(fifth, 2 * k + 1) << 4) - high_m;
    }
  }
}

// For each half h of 128 elements: bytes 64 h to 64 h + 63 are low nibbles, bytes 128 + 32 h on the upper two bits.
// Bytes 192-207: signed scales of the sub-blocks of 16. Bytes 208-209: d.
void decode_q6_k(const std::byte* block, float* out) {
  const float d = half_at(block + 208);
  float scales[16];
  for (int s = 0; s < 16; ++s) scales[s] = d * static_cast<float>(std::to_integer<int8_t>(block[192 + s]));
  for (int h = 0; h < 2; ++h) {
    const std::byte* low = block + 64 * h;
    const std::byte* high = block + 128 + 32 * h;
    for (int l = 0; l < 32; ++l) {
      const int upper = std::to_integer<int>(high[l]);
      const int codes[4] = {low_nibble(low[l]) | (upper & 3) << 4, low_nibble(low[l + 32]) | (upper >> 2 & 3) << 4,
                            high_nibble(low[l]) | (upper >> 4 & 3) << 4, high_nibble(low[l + 32]) | (upper >> 6) << 4};
      for (int q = 0; q < 4; ++q)
        out[128 * h + 32 * q + l] = scales[8 * h + 2 * q + l / 16] * static_cast<float>(codes[q] - 32);
    }
  }
}

void encode_f32(const float* values, std::byte* block) { std::memcpy(block, values, sizeof(*values)); }
void encode_f16(const float* values, std::byte* block) {
  const float16 half = to_float16(*values);
  std::memcpy(block, &half, sizeof(half));
}
void encode_bf16(const float* values, std::byte* block) {
  const bfloat16 narrow = to_bfloat16(*values);
  std::memcpy(block, &narrow, sizeof(narrow));
}

struct Codec {
  BlockFormat format;
  void (*decode)(const std::byte* block, float* values);
  void (*encode)(const float* values, std::byte* block);
};
constexpr Codec kCodecs[] = {
    {BlockFormat::f32, decode_plain<float>, encode_f32},
    {BlockFormat::f16, decode_plain<float16>, encode_f16},
    {BlockFormat::bf16, decode_plain<bfloat16>, encode_bf16},
    {BlockFormat::q4_0, decode_q4_0, encode_q4_0},
    {BlockFormat::q4_1, decode_q4_1, encode_q4_1},
    {BlockFormat::q5_0, decode_q5_0, encode_q5_0},
    {BlockFormat::q5_1, decode_q5_1, encode_q5_1},
    {BlockFormat::q8_0, decode_q8_0, encode_q8_0},
    {BlockFormat::q4_k, decode_q4_k, encode_q4_k},
    {BlockFormat::q5_k, decode_q5_k, encode_q5_k},
    {BlockFormat::q6_k, decode_q6_k, encode_q6_k},
};

const Codec* find_codec(BlockFormat format) {
  const auto* found =
      std::find_if(std::begin(kCodecs), std::end(kCodecs), [&](const Codec& codec) { return codec.format == format; });
  return found == std::end(kCodecs) ? nullptr : found;
}

std::string names_of_codecs() {
  std::string names;
  for (const Codec& codec : kCodecs) names += fmt::format("{}{}", names.empty() ? "" : " ", name_of(codec.format));
  return names;
}

// How many blocks `values` and `blocks` are.
size_t count_blocks(const char* where, const BlockFormatRow& row, size_t values, size_t nbytes) {
  const auto elements = static_cast<size_t>(row.elements), each = static_cast<size_t>(row.nbytes);
  TUTTI_CHECK(values % elements == 0 && nbytes % each == 0 && values / elements == nbytes / each,
              "{}: {} elements and {} bytes are not the same number of {} blocks of {} elements in {} bytes", where,
              values, nbytes, row.name, elements, each);
  return values / elements;
}

}  // namespace

bool can_decode(BlockFormat format) { return find_codec(format) != nullptr; }

bool can_encode(BlockFormat format) { return find_codec(format) != nullptr; }

void decode_blocks(BlockFormat format, std::span<const std::byte> blocks, std::span<float> values) {
  const BlockFormatRow& row = row_of(format);
  const Codec* codec = find_codec(format);
  TUTTI_CHECK(codec != nullptr, "decode_blocks: {} is not decoded; known are {}", row.name, names_of_codecs());
  const size_t count = count_blocks("decode_blocks", row, values.size(), blocks.size());
  for (size_t b = 0; b < count; ++b)
    codec->decode(blocks.data() + b * static_cast<size_t>(row.nbytes),
                  values.data() + b * static_cast<size_t>(row.elements));
}

void encode_blocks(BlockFormat format, std::span<const float> values, std::span<std::byte> blocks) {
  const BlockFormatRow& row = row_of(format);
  const Codec* codec = find_codec(format);
  TUTTI_CHECK(codec != nullptr, "encode_blocks: {} is not encoded; known are {}", row.name, names_of_codecs());
  const size_t count = count_blocks("encode_blocks", row, values.size(), blocks.size());
  for (size_t b = 0; b < count; ++b)
    codec->encode(values.data() + b * static_cast<size_t>(row.elements),
                  blocks.data() + b * static_cast<size_t>(row.nbytes));
}

}  // namespace tutti

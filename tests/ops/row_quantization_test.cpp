#include "tutti/ops/row_quantization.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

constexpr RowQuantization kAllFormats[] = {
    RowQuantization::fused_8bit_rowwise, RowQuantization::fused_4bit_rowwise_sbhalf,
    RowQuantization::fused_8bit_rowwise_sbhalf_front, RowQuantization::fused_4bit_rowwise_sbhalf_front};

bool is_front(RowQuantization f) { return static_cast<int>(f) >= 2; }
bool has_8_bits(RowQuantization f) { return static_cast<int>(f) % 2 == 0; }

// The bytes of a row of two numbers of which one is the minimum, for a scale and a minimum.
std::vector<uint8_t> bytes_of(RowQuantization format, float scale, float minimum, const std::vector<uint8_t>& codes) {
  std::vector<uint8_t> parts, packed;
  const auto put = [&](auto x) {
    uint8_t raw[sizeof(x)];
    std::memcpy(raw, &x, sizeof(x));
    parts.insert(parts.end(), raw, raw + sizeof(x));
  };
  if (format == RowQuantization::fused_8bit_rowwise) put(scale), put(minimum);
  else put(to_float16(scale)), put(to_float16(minimum));
  for (size_t d = 0; d < codes.size(); ++d) {
    if (has_8_bits(format) || d % 2 == 0) packed.push_back(codes[d]);
    else packed.back() = static_cast<uint8_t>(packed.back() + 16 * codes[d]);
  }
  std::vector<uint8_t> row = is_front(format) ? parts : packed;
  const std::vector<uint8_t>& behind = is_front(format) ? packed : parts;
  row.insert(row.end(), behind.begin(), behind.end());
  while (is_front(format) && row.size() % 16 != 0) row.push_back(0);
  return row;
}

std::vector<uint8_t> bytes(const Tensor& t) { return {t.data<uint8_t>(), t.data<uint8_t>() + t.numel()}; }

TEST(RowQuantization, DecodesEveryCodeOfEveryFormatByItsFormula) {
  for (const RowQuantization format : kAllFormats) {
    for (const auto& [scale, minimum] : {std::pair{0.1f, -3.7f}, {1.0f, 0.0f}, {-0.25f, 8.0f}, {0x1p-24f, 65504.0f}}) {
      std::vector<uint8_t> codes;
      for (int k = 0; k < (has_8_bits(format) ? 256 : 16); ++k) codes.push_back(static_cast<uint8_t>(k));
      codes.insert(codes.end(), {3, 1, 2});  // and what lanes leave
      const std::vector<uint8_t> row = bytes_of(format, scale, minimum, codes);
      const int64_t columns = static_cast<int64_t>(codes.size());
      ASSERT_EQ(quantized_row_nbytes(format, columns), static_cast<int64_t>(row.size()));
      const Tensor x =
          dequantize_rows(Tensor::of<uint8_t>(row, {1, static_cast<int64_t>(row.size())}), format, columns);
      const bool f32 = format == RowQuantization::fused_8bit_rowwise;
      const double s = f32 ? scale : to_float(to_float16(scale)), m = f32 ? minimum : to_float(to_float16(minimum));
      for (size_t d = 0; d < codes.size(); ++d)
        ASSERT_EQ(x.data<float>()[d], static_cast<float>(s * codes[d] + m)) << d << " in format " << int(format);
    }
  }
}

TEST(RowQuantization, KeepsNumbersWithinHalfAStep) {
  const Tensor table = facets::sample_tensor(3, {40, 37});
  for (const RowQuantization format : kAllFormats) {
    const Tensor back = dequantize_rows(quantize_rows(table, format), format, 37);
    for (int64_t r = 0; r < 40; ++r) {
      const float* x = table.data<float>() + r * 37;
      const auto [least, most] = std::minmax_element(x, x + 37);
      // f16 moves the minimum and each of the steps.
      const double step = (*most - *least) / (has_8_bits(format) ? 255 : 15), moved = 2 * 0x1p-10;
      for (int64_t d = 0; d < 37; ++d)
        ASSERT_NEAR(back.data<float>()[r * 37 + d], x[d], step / 2 + moved * 2) << r << " " << d;
    }
  }
}

TEST(RowQuantization, HasTheSameBytesForViewsNarrowFloatsAndThreads) {
  const Tensor whole = facets::sample_tensor(5, {400, 50}), view = narrow(slice(whole, 0, 0, 400, 3), 1, 7, 33);
  const Tensor dense = clone(view), half = cast(dense, DType::f16);
  for (const RowQuantization format : kAllFormats) {
    expect_same_bits(quantize_rows(view, format), quantize_rows(dense, format));
    expect_same_bits(quantize_rows(half, format), quantize_rows(cast(half, DType::f32), format));
    const Tensor rows = quantize_rows(whole, format), numbers = dequantize_rows(rows, format, 50);
    for (const int threads : {1, 2, 4}) {
      RankContext::current().set_threads(threads);
      expect_same_bits(quantize_rows(whole, format), rows);
      expect_same_bits(dequantize_rows(rows, format, 50), numbers);
    }
    RankContext::current().set_threads(0);
    expect_same_bits(dequantize_rows(slice(rows, 0, 0, 400, 2), format, 50), clone(slice(numbers, 0, 0, 400, 2)));
  }
}

TEST(RowQuantization, GivesConstantRowsTheirNumber) {
  for (const RowQuantization format : kAllFormats) {
    for (const float x : {0.0f, 0.1f, -7.25f, 60000.0f}) {
      const Tensor back = dequantize_rows(quantize_rows(Tensor::of<float>({x, x, x}, {1, 3}), format), format, 3);
      for (int64_t d = 0; d < 3; ++d)
        EXPECT_NEAR(back.data<float>()[d], x,
                    format == RowQuantization::fused_8bit_rowwise ? 0 : std::fabs(x) * 0x1p-11);
    }
    EXPECT_EQ(quantize_rows(Tensor::empty({0, 5}, DType::f32), format).numel(), 0);
    EXPECT_EQ(dequantize_rows(quantize_rows(Tensor::empty({2, 0}, DType::f32), format), format, 0).numel(), 0);
  }
}

TEST(RowQuantization, NamesRowsThatAFormatCannotHold) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), most = std::numeric_limits<float>::max();
  const auto with = [](std::vector<float> row, RowQuantization format) {
    std::vector<float> table(row.size(), 1.0f);
    table.insert(table.end(), row.begin(), row.end());
    const int64_t columns = static_cast<int64_t>(row.size());
    return message_of([&] { quantize_rows(Tensor::of<float>(table, {2, columns}), format); });
  };
  for (const RowQuantization format : kAllFormats)
    EXPECT_EQ(with({1, nan}, format), "quantize_rows: row 1, column 1 is nan; expected finite numbers");
  EXPECT_EQ(with({most, -most}, RowQuantization::fused_8bit_rowwise),
            "quantize_rows: row 1 has numbers from -3.4028235e+38 to 3.4028235e+38, whose difference, scale or minimum "
            "is too large for f32; the limit is 3.4e38");
  EXPECT_EQ(with({-1e5f, 0}, RowQuantization::fused_4bit_rowwise_sbhalf),
            "quantize_rows: row 1 has numbers from -100000 to 0, whose difference, scale or minimum is too large for "
            "f16; the limit is 65504");
  EXPECT_EQ(
      message_of([&] { dequantize_rows(Tensor::empty({2, 9}, DType::u8), RowQuantization::fused_8bit_rowwise, 2); }),
      "dequantize_rows: the rows are [2, 9] u8 cpu; expected u8 [rows, 10] for 2 columns");
}

// ---- FBGEMM ---------------------------------------------------------------------------------------------------------

// The formulas of tests/ops/quantized_rows_reference.py.
uint64_t peer_word(uint64_t a, uint64_t b) {
  return ((a * 2654435761u + b * 40503 + 12345) % (uint64_t{1} << 32)) >> 8;
}
Tensor peer_rows(int64_t count, int64_t columns) {
  const std::pair<double, double> scales[] = {{1, 0}, {1e-3, 0.5}, {100, -30}, {0, 0.1},
                                              {0, 0}, {1e-9, 0},   {3e4, 0},   {0, -1.0 / 3}};
  const Tensor t = Tensor::empty({count, columns}, DType::f32);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double n = static_cast<double>(peer_word(static_cast<uint64_t>(i), static_cast<uint64_t>(columns)));
    const auto& [scale, shift] = scales[i / columns % 8];
    t.data<float>()[i] = static_cast<float>(n / (1 << 23) - 1) * static_cast<float>(scale) + static_cast<float>(shift);
  }
  return t;
}

std::string hex(const std::vector<uint8_t>& row) {
  std::string text;
  for (const uint8_t b : row) text += fmt::format("{:02x}", b);
  return text;
}

TEST(RowQuantization, HasTheBytesOfFbgemmAndDecodesThemAlike) {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/fbgemm_rows.txt");
  Tensor table;
  int64_t row = 0, compared = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, text;
    words >> name;
    if (name == "rows") {
      int64_t count, columns;
      words >> count >> columns;
      table = peer_rows(count, columns);
      row = 0;
      continue;
    }
    const bool eight = name.starts_with("8bit");
    const RowQuantization format = kAllFormats[eight ? 0 : 1];
    if (name == "8bit" || name == "4bit") {
      words >> text;
      const int64_t rows = table.extents()[0];
      EXPECT_EQ(hex(bytes(clone(narrow(quantize_rows(table, format), 0, row % rows, 1)))), text)
          << name << " row " << row % rows << " of " << table.extents()[1] << " columns";
      // In front, the same codes, with scale and minimum in f16.
      const std::string front =
          hex(bytes(clone(narrow(quantize_rows(table, kAllFormats[eight ? 2 : 3]), 0, row % rows, 1))));
      const size_t codes = text.size() - (eight ? 16 : 8);
      EXPECT_EQ(front.substr(8, codes), text.substr(0, codes));
      if (!eight) {
        EXPECT_EQ(front.substr(0, 8), text.substr(codes));
      }
      ++row, ++compared;
    } else if (name == "8bit_values" || name == "4bit_values") {
      int64_t count;
      words >> count;
      const Tensor back = dequantize_rows(quantize_rows(table, format), format, table.extents()[1]);
      ASSERT_EQ(back.numel(), count);
      for (int64_t i = 0; i < count; ++i) {
        double value;
        words >> value;
        ASSERT_EQ(back.data<float>()[i], static_cast<float>(value)) << name << " " << i;
      }
    }
  }
  EXPECT_EQ(compared, 9 * 16);
}

}  // namespace
}  // namespace tutti

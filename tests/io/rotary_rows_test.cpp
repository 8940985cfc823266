#include "tutti/io/rotary_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/message_of.h"

namespace tutti::io {
namespace {

template <class T>
std::vector<T> moved(void (*move)(std::span<const std::byte>, std::span<std::byte>, int64_t, int64_t),
                     const std::vector<T>& from, int64_t heads, int64_t row_nbytes) {
  std::vector<T> to(from.size());
  move(std::as_bytes(std::span(from)), std::as_writable_bytes(std::span(to)), heads, row_nbytes);
  return to;
}

TEST(RotaryRows, RowOfAPairIsTheRowOfAHalf) {
  // Two heads of 6 rows: row 2 i + j in pairs is row 3 j + i in halves.
  const std::vector<float> halves = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15};
  const std::vector<float> pairs = {0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15};
  EXPECT_EQ(moved(rotary_rows_to_pair_layout, halves, 2, sizeof(float)), pairs);
  EXPECT_EQ(moved(rotary_rows_to_half_layout, pairs, 2, sizeof(float)), halves);
}

TEST(RotaryRows, RowsOfAnySizeComeBack) {
  for (const int64_t row_nbytes : {1, 2, 18, 144, 210 * 3}) {
    for (const int64_t heads : {1, 3, 9}) {
      for (const int64_t rows : {2, 8, 64}) {
        std::vector<uint8_t> bytes(static_cast<size_t>(row_nbytes * heads * rows));
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + i / 251);
        const auto pairs = moved(rotary_rows_to_pair_layout, bytes, heads, row_nbytes);
        EXPECT_EQ(moved(rotary_rows_to_half_layout, pairs, heads, row_nbytes), bytes);
        EXPECT_EQ(pairs == bytes, rows == 2);
        // The second row of a head in pairs is the first of its upper half.
        const auto row = static_cast<size_t>(row_nbytes);
        EXPECT_EQ(std::memcmp(pairs.data() + row, bytes.data() + row * static_cast<size_t>(rows / 2), row), 0);
      }
    }
  }
}

TEST(RotaryRows, RowsThatAreNotHalvesOfHeadsAreRefused) {
  std::vector<std::byte> from(24), to(24), other(12);
  EXPECT_EQ(message_of([&] { rotary_rows_to_half_layout(from, to, 4, 2); }),
            "rotary rows: 24 bytes to 24 are not 4 heads of an even number of rows of 2 bytes");
  EXPECT_EQ(message_of([&] { rotary_rows_to_pair_layout(from, other, 1, 2); }),
            "rotary rows: 24 bytes to 12 are not 1 heads of an even number of rows of 2 bytes");
  for (const auto& [heads, row_nbytes] : {std::pair{0, 2}, {2, 0}, {5, 2}, {2, 5}, {-2, 2}})
    EXPECT_NE(message_of([&] { rotary_rows_to_half_layout(from, to, heads, row_nbytes); }), "no error");
  EXPECT_EQ(message_of([&] { rotary_rows_to_half_layout({}, {}, 4, 2); }), "no error");
}

}  // namespace
}  // namespace tutti::io

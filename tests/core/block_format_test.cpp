#include "tutti/core/block_format.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace tutti {
namespace {

TEST(BlockFormat, RowsAreFoundByIdAndName) {
  for (uint32_t id = 0; id < 100; ++id) {
    const BlockFormatRow* row = find_block_format(id);
    if (row == nullptr) continue;
    EXPECT_EQ(static_cast<uint32_t>(row->format), id);
    EXPECT_EQ(block_format_from_name(row->name), row->format);
    EXPECT_EQ(name_of(row->format), row->name);
    if (row->dtype) {
      EXPECT_EQ(row->elements, 1) << row->name;
      EXPECT_EQ(row->nbytes, itemsize(*row->dtype)) << row->name;
      EXPECT_EQ(block_format_of(*row->dtype), row->format);
    }
  }
  EXPECT_EQ(row_of(BlockFormat::q6_k).nbytes, 210);
  EXPECT_EQ(block_format_of(DType::u8), std::nullopt);
}

TEST(BlockFormat, RemovedAndUnknownIdsHaveNoRow) {
  for (const uint32_t id : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 43U, 0x10000U, 0xffffffffU})
    EXPECT_EQ(find_block_format(id), nullptr) << id;
}

TEST(BlockFormat, UnknownNamesListTheKnownOnes) {
  EXPECT_EQ(message_of([] {
              block_format_from_name("Q4_M");
            }).find("unknown block format 'Q4_M'; did you mean 'Q4_0'? Known: F32, F16, Q4_0, "),
            0U);
}

TEST(BlockFormat, BytesOfElementsThatDoNotFitAreNone) {
  EXPECT_EQ(block_nbytes(BlockFormat::q4_k, 512), 288);
  EXPECT_EQ(block_nbytes(BlockFormat::f64, int64_t{1} << 60), std::nullopt);
  EXPECT_EQ(block_nbytes(BlockFormat::q8_0, 0), 0);
}

}  // namespace
}  // namespace tutti

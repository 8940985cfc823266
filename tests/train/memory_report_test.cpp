#include "tutti/train/report/memory_report.h"

#include "tutti/train/report/byte_text.h"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

constexpr int64_t kMiB = 1 << 20;

MemoryStatistics example() {
  MemoryStatistics statistics{.peak_bytes = 8 * kMiB};
  statistics.at_peak_by_category[static_cast<size_t>(MemoryCategory::activations)] = 2 * kMiB;
  statistics.at_peak_by_category[static_cast<size_t>(MemoryCategory::optimizer)] = 6 * kMiB;
  return statistics;
}

TEST(MemoryReport, NamesTheLargestShareFirst) {
  EXPECT_EQ(memory_line(example()), "8.0 MiB = optimizer 6.0 + activations 2.0");
}

TEST(MemoryReport, RowsEndWithThePeak) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"optimizer", "6.0 MiB (75 %)"}, {"activations", "2.0 MiB (25 %)"}, {"peak", "8.0 MiB"}};
  EXPECT_EQ(memory_rows(example()), expected);
}

TEST(MemoryReport, OfNothingIsZero) { EXPECT_EQ(memory_line({}), "0 B"); }

TEST(ByteText, HasTheUnitThatFits) {
  const std::pair<int64_t, const char*> rows[] = {{0, "0 B"},
                                                  {1023, "1023 B"},
                                                  {1024, "1.0 KiB"},
                                                  {42188, "41.2 KiB"},
                                                  {int64_t{66} << 20, "66.0 MiB"},
                                                  {int64_t{3} << 29, "1.50 GiB"},
                                                  {int64_t{5} << 40, "5.00 TiB"}};
  for (const auto& [nbytes, text] : rows) EXPECT_EQ(byte_text(nbytes), text);
}

// The parts are in the unit of the whole, and each row of the table in its own.
TEST(MemoryReport, HasUnitsThatFitRunsOfAllSizes) {
  for (int shift = 0; shift <= 40; shift += 5) {
    MemoryStatistics statistics;
    statistics.at_peak_by_category[0] = int64_t{600} << shift;
    statistics.at_peak_by_category[1] = int64_t{400} << shift;
    statistics.peak_bytes = int64_t{1000} << shift;
    EXPECT_EQ(memory_rows(statistics).back().second, byte_text(statistics.peak_bytes));
    EXPECT_EQ(memory_rows(statistics).front().second, byte_text(int64_t{600} << shift) + " (60 %)");
    const ByteUnit unit = byte_unit(statistics.peak_bytes);
    EXPECT_EQ(memory_line(statistics).find(byte_text(statistics.peak_bytes) + " = "), 0u);
    EXPECT_NE(memory_line(statistics).find(" " + in_unit(int64_t{600} << shift, unit) + " + "), std::string::npos)
        << memory_line(statistics);
  }
}

}  // namespace
}  // namespace tutti::train

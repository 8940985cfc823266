#include "tutti/train/memory_report.h"

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

TEST(MemoryReport, OfNothingIsZero) { EXPECT_EQ(memory_line({}), "0.0 MiB"); }

}  // namespace
}  // namespace tutti::train

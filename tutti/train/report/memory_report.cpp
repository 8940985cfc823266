#include "tutti/train/report/memory_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/train/report/byte_text.h"

namespace tutti::train {
namespace {

struct Share {
  std::string name;
  int64_t nbytes;
};

std::vector<Share> shares_of(const MemoryStatistics& statistics) {
  std::vector<Share> shares;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const int64_t nbytes = statistics.at_peak_by_category[static_cast<size_t>(i)];
    if (nbytes > 0) shares.push_back({std::string(name_of(static_cast<MemoryCategory>(i))), nbytes});
  }
  std::stable_sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.nbytes > b.nbytes; });
  return shares;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> memory_rows(const MemoryStatistics& statistics) {
  const double peak = static_cast<double>(statistics.peak_bytes);
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Share& s : shares_of(statistics))
    rows.emplace_back(s.name,
                      fmt::format("{} ({:.0f} %)", byte_text(s.nbytes), 100 * static_cast<double>(s.nbytes) / peak));
  rows.emplace_back("peak", byte_text(statistics.peak_bytes));
  return rows;
}

std::string memory_line(const MemoryStatistics& statistics) {
  const ByteUnit unit = byte_unit(statistics.peak_bytes);
  std::string line = byte_text(statistics.peak_bytes);
  const char* sign = " =";
  for (const Share& s : shares_of(statistics)) {
    if (in_unit(s.nbytes, unit) == in_unit(0, unit)) break;
    line += fmt::format("{} {} {}", sign, s.name, in_unit(s.nbytes, unit));
    sign = " +";
  }
  return line;
}

}  // namespace tutti::train

#include "tutti/train/memory_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::train {
namespace {

constexpr double kBytesOfMiB = 1 << 20;

struct Share {
  std::string name;
  double nbytes;
};

std::vector<Share> shares_of(const MemoryStatistics& statistics) {
  std::vector<Share> shares;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const int64_t nbytes = statistics.at_peak_by_category[static_cast<size_t>(i)];
    if (nbytes > 0) shares.push_back({std::string(name_of(static_cast<MemoryCategory>(i))), static_cast<double>(nbytes)});
  }
  std::stable_sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.nbytes > b.nbytes; });
  return shares;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> memory_rows(const MemoryStatistics& statistics) {
  const double peak = static_cast<double>(statistics.peak_bytes);
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Share& s : shares_of(statistics)) rows.emplace_back(s.name, fmt::format("{:.1f} MiB ({:.0f} %)", s.nbytes / kBytesOfMiB, 100 * s.nbytes / peak));
  rows.emplace_back("peak", fmt::format("{:.1f} MiB", peak / kBytesOfMiB));
  return rows;
}

std::string memory_line(const MemoryStatistics& statistics) {
  std::string line = fmt::format("{:.1f} MiB", static_cast<double>(statistics.peak_bytes) / kBytesOfMiB);
  const char* sign = " =";
  for (const Share& s : shares_of(statistics)) {
    if (s.nbytes < 0.05 * kBytesOfMiB) break;  // would be written as 0.0
    line += fmt::format("{} {} {:.1f}", sign, s.name, s.nbytes / kBytesOfMiB);
    sign = " +";
  }
  return line;
}

}  // namespace tutti::train

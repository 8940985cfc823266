// report.html: the report of a run on one self-contained page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/train/config.h"
#include "tutti/train/metrics.h"
#include "tutti/train/rank_charts.h"

namespace tutti::train {

struct ReportSample {
  int64_t step = 0;
  std::string text;  // the prompt and the generated text; bytes that are not UTF-8 are replaced
};

struct Report {
  std::string title;
  Config config;
  std::vector<StepRecord> records;
  // Bits per byte of an order-2 byte model on the same held-out text.
  std::optional<double> order2_bits_per_byte = std::nullopt;
  std::vector<ReportSample> samples;                         // oldest first
  std::vector<std::pair<std::string, std::string>> model;    // "parameters" -> "2,883,584"
  std::vector<std::pair<std::string, std::string>> machine;  // "CPU" -> "..."
  std::vector<std::pair<std::string, std::string>> memory = {};  // "activations" -> "41.2 MiB (62 %)"
  std::vector<RankMemoryBars> ranks = {};
  std::optional<StepTimeline> timeline = std::nullopt;
};

std::string render_report(const Report& report);
// Replaces the file atomically.
void write_report(const std::filesystem::path& path, const Report& report);

// The text with malformed UTF-8 sequences replaced by U+FFFD and control characters by a visible mark.
std::string displayable(std::string_view text);

}  // namespace tutti::train

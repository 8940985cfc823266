// report.html: the report of a run on one self-contained page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/train/config/config.h"
#include "tutti/train/report/metrics.h"
#include "tutti/train/report/report_facts.h"

namespace tutti::train {

struct Report {
  std::string title;
  Config config;
  std::vector<StepRecord> records;
  // What the model is compared with on the same held-out data (task/task.h).
  std::optional<double> baseline = std::nullopt;
  std::vector<std::pair<std::string, std::string>> model;    // "parameters" -> "2,883,584"
  std::vector<std::pair<std::string, std::string>> machine;  // "CPU" -> "..."
  ReportFacts facts = {};
};

std::string render_report(const Report& report);
// Replaces the file atomically.
void write_report(const std::filesystem::path& path, const Report& report);

// The text with malformed UTF-8 sequences replaced by U+FFFD and control characters by a visible mark.
std::string displayable(std::string_view text);

}  // namespace tutti::train

// report.json: what the report shows of the starts of a run that neither metrics.jsonl nor the configuration holds. A
// start that trains no step, or too few to measure something, writes the page with what earlier starts have measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/train/report/rank_charts.h"
#include "tutti/train/report/step_timeline.h"

namespace tutti::train {

struct ReportSample {
  int64_t step = 0;
  std::string text;  // the prompt and the generated text; bytes that are not UTF-8 are replaced
};

struct ReportFacts {
  std::vector<std::pair<std::string, std::string>> memory = {};  // "activations" -> "41.2 MiB (62 %)"
  std::vector<RankMemoryBars> ranks = {};
  std::optional<StepTimeline> timeline = std::nullopt;
  std::vector<ReportSample> samples = {};  // oldest first, one for a step
};

std::string to_json(const ReportFacts& facts);
// UsageError, naming `where`, when the text is not what to_json() writes.
ReportFacts parse_report_facts(std::string_view text, const std::string& where);
// Nothing where there is no such file. Errors as parse_report_facts().
ReportFacts read_report_facts(const std::filesystem::path& path);

}  // namespace tutti::train

// The log files and the report of a run. Only rank 0 has one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/train/config/config.h"
#include "tutti/train/report/metrics.h"
#include "tutti/train/report/report.h"
#include "tutti/train/report/status_line.h"
#include "tutti/train/report/tensorboard.h"
#include "tutti/train/run_folder.h"

namespace tutti::train {

class RunLog {
 public:
  // Continues the logs in `folder` after `resumed_step`. What this start does not measure, the report shows as earlier
  // starts have measured it.
  RunLog(const RunFolder& folder, const Config& config, int64_t resumed_step, bool quiet);

  void step(const StepRecord& record);
  void note(const std::string& text);
  // Like note(), but shown even with `quiet`: for things that the user did not ask for.
  void warn(const std::string& text);
  void set_baseline(double value) { report_.baseline = value; }
  void set_facts(std::vector<std::pair<std::string, std::string>> model) { report_.model = std::move(model); }
  // The composition of a step's peak memory (memory_report.h).
  void set_memory(std::vector<std::pair<std::string, std::string>> rows) { report_.facts.memory = std::move(rows); }
  void set_ranks(std::vector<RankMemoryBars> ranks) { report_.facts.ranks = std::move(ranks); }
  void set_timeline(StepTimeline timeline) { report_.facts.timeline = std::move(timeline); }
  // Also writes sample.txt.
  void sample(int64_t step, const std::string& text);
  // Writes report.html, and report.json for later starts.
  void write_report();

 private:
  const RunFolder& folder_;
  Report report_;
  MetricsWriter metrics_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
  StatusLine status_;
  EtaEstimate eta_;
  std::chrono::steady_clock::time_point last_step_;
  bool quiet_;
};

}  // namespace tutti::train

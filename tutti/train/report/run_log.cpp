#include "tutti/train/report/run_log.h"

#include <fmt/format.h>

#include "tutti/runtime/atomic_file.h"
#include "tutti/train/report/machine.h"

namespace tutti::train {

RunLog::RunLog(const RunFolder& folder, const Config& config, int64_t resumed_step, bool quiet)
    : folder_(folder),
      metrics_(folder.metrics(), resumed_step),
      status_(stderr, StatusLine::style_for(stderr)),
      eta_(config.training.steps),
      last_step_(std::chrono::steady_clock::now()),
      quiet_(quiet) {
  report_.title = config.run.name;
  report_.config = config;
  report_.records = read_metrics(folder.metrics());
  report_.machine = machine_facts();
  if (resumed_step > 0 && config.metrics.report) {
    try {
      report_.facts = read_report_facts(folder.report_facts());
    } catch (const std::exception& error) {  // the run itself does not depend on it
      warn(fmt::format("report.html will lack what earlier starts measured: {}", error.what()));
    }
  }
  if (config.metrics.tensorboard)
    tensorboard_ = std::make_unique<TensorboardWriter>(folder.path() / "tensorboard", resumed_step);
}

void RunLog::step(const StepRecord& record) {
  metrics_.write(record);
  if (tensorboard_) tensorboard_->write(record.step, scalars_of(record));
  report_.records.push_back(record);
  const auto now = std::chrono::steady_clock::now();
  eta_.add_step(record.step, now - last_step_);
  last_step_ = now;
  if (!quiet_) status_.show(record, report_.config.training.steps, eta_.left());
}

void RunLog::note(const std::string& text) {
  if (!quiet_) status_.note(text);
}

void RunLog::warn(const std::string& text) { status_.note(text); }

void RunLog::sample(int64_t step, const std::string& text) {
  std::vector<ReportSample>& samples = report_.facts.samples;
  std::erase_if(samples, [&](const ReportSample& earlier) {
    return earlier.step >= step;
  });  // written before the run was resumed
  samples.push_back({step, text});
  write_file_atomically(folder_.sample(), text + "\n");
}

void RunLog::write_report() {
  if (!report_.config.metrics.report) return;
  write_file_atomically(folder_.report_facts().string(), to_json(report_.facts));
  train::write_report(folder_.report(), report_);
}

}  // namespace tutti::train

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "tutti/core/error.h"
#include "tutti/train/report/byte_text.h"
#include "tutti/train/report/expert_plot.h"
#include "tutti/train/report/record_words.h"

namespace tutti::cli {
namespace {

struct Flags {
  std::string run;
  bool experts = false, json = false;
  std::optional<int64_t> step;
};

// The step that was asked for, or the last one.
const train::StepRecord& chosen(const std::vector<train::StepRecord>& records, const Flags& flags) {
  TUTTI_CHECK(!records.empty(), "{} has recorded no step", flags.run);
  if (!flags.step) return records.back();
  for (const train::StepRecord& r : records) {
    if (r.step == *flags.step) return r;
  }
  throw UsageError(fmt::format("{} has no record of step {}; it has recorded steps {} to {}", flags.run, *flags.step,
                               records.front().step, records.back().step));
}

int run_report(const Flags& flags) {
  const std::filesystem::path metrics = std::filesystem::path(flags.run) / "metrics.jsonl";
  TUTTI_CHECK(std::filesystem::exists(metrics), "{} is not the folder of a run: it holds no metrics.jsonl", flags.run);
  const std::vector<train::StepRecord> records = train::read_metrics(metrics);
  const train::StepRecord& record = chosen(records, flags);
  if (flags.json) {
    if (!flags.experts) std::printf("%s\n", train::to_json(record).c_str());
    for (const train::ExpertLoad& load : record.experts) {
      if (flags.experts) std::printf("%s\n", train::to_json(load).c_str());
    }
    return 0;
  }
  if (flags.experts) {
    std::fputs(train::describe_expert_loads(record).c_str(), stdout);
    return 0;
  }
  std::printf("step %lld: loss %.4f, gradient norm %.4g, learning rate %.3g, %.0f %s/s, peak memory %s\n",
              static_cast<long long>(record.step), static_cast<double>(record.loss), record.grad_norm, record.lr,
              record.items_per_s, train::words_of(record.model).items,
              train::byte_text(record.memory_peak_bytes).c_str());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("report", "Print a step of a run; the whole run is in its report.html");
  auto flags = std::make_shared<Flags>();
  verb->add_option("run", flags->run, "Run folder, e.g. runs/quickstart")->required();
  verb->add_option("--step", flags->step, "The step to print; else the last one");
  verb->add_flag("--experts", flags->experts,
                 "The loads of experts: a line for each layer, a character for each expert");
  verb->add_flag("--json", flags->json,
                 "The line of metrics.jsonl; with --experts one object per layer: layer, tokens, max_over_mean, "
                 "entropy, bias_min, bias_max, starved");
  verb->callback([flags, &action] { action = [flags] { return run_report(*flags); }; });
}

}  // namespace tutti::cli

// `tutti bench layouts`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/layouts_bench.h"
#include "cli/command.h"
#include "cli/end_on_signal.h"
#include "cli/runs_folder.h"

namespace tutti::cli {

void add_bench_layouts(CLI::App& bench, Action& action);

namespace {

struct LayoutsFlags {
  bench::LayoutsProblem problem;
  std::string keep;
  bool json = false;
};

std::string where_it_parts(const train::RunDiff& diff) {
  const std::string tensor = diff.differing.empty() ? "" : fmt::format(", most in {}", diff.differing[0].name);
  if (diff.number)
    return fmt::format("differs from step {} on ({}, {} ULPs){}", diff.number->step, diff.number->what,
                       diff.number->ulps, tensor);
  return fmt::format("differs in {} at step {}", diff.differing[0].name, diff.differing[0].step);
}

std::string verdict(const bench::Layout& layout, const bench::LayoutResult& result) {
  if (result.diff.same_bits() && !result.excess.empty()) return "same bits, but " + result.excess;
  const bool has_usual_base = layout.base == bench::kReference;
  if (layout.name == layout.base) return has_usual_base ? "the reference" : "the reference of its dtype";
  if (result.diff.same_bits())
    return layout.is_control ? "same bits, but must differ"
           : has_usual_base  ? "same bits"
                             : "same bits as " + layout.base;
  return where_it_parts(result.diff) + (layout.is_control ? ", as it must" : "");
}

void print(const bench::Layout& layout, const bench::LayoutResult& result, const std::string& verdict, bool json) {
  if (!json) {
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    fmt::print("{:<38} {:<16} {:<22} {:<16} {:>8.1f} {:>8.2f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f}  {}\n", layout.name,
               result.loss_hex, result.grad_norm_hex, result.digest, result.step_ms,
               static_cast<double>(result.product_flops) / 1e9, mib(result.peak_bytes), mib(result.planned_peak_bytes),
               mib(result.sent_bytes), mib(result.planned_sent_bytes), verdict);
  } else {
    const nlohmann::ordered_json row = {{"layout", layout.name},
                                        {"control", layout.is_control},
                                        {"loss_hex", result.loss_hex},
                                        {"grad_norm_hex", result.grad_norm_hex},
                                        {"digest", result.digest},
                                        {"step_ms", result.step_ms},
                                        {"product_flops", result.product_flops},
                                        {"peak_bytes", result.peak_bytes},
                                        {"planned_peak_bytes", result.planned_peak_bytes},
                                        {"sent_bytes", result.sent_bytes},
                                        {"planned_sent_bytes", result.planned_sent_bytes},
                                        {"losses", result.diff.steps.size()},
                                        {"tensors", result.diff.tensors},
                                        {"verdict", verdict},
                                        {"as_promised", result.is_as_promised}};
    fmt::print("{}\n", row.dump());
  }
  std::fflush(stdout);
}

int run_layouts(const LayoutsFlags& flags) {
  RunsFolder folder(flags.keep, "tutti-layouts");
  const EndOnSignal end(folder);
  if (!flags.json)
    fmt::print("{:<38} {:<16} {:<22} {:<16} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  {}\n", "layout", "last loss",
               "gradient norm", "digest", "step_ms", "GFLOP", "peak MiB", "planned", "sent MiB", "planned",
               "compared with one-rank");
  size_t layouts = 0, losses = 0, controls = 0, broken = 0, equal_controls = 0;
  int64_t tensors = 0;
  std::map<std::string, bench::LayoutResult> results;
  const std::vector<bench::Layout> rows = bench::layouts_of(flags.problem);
  // Checkpoints of large models are large: a run that no other is compared with goes at once.
  const auto is_base = [&](const std::string& name) {
    return std::any_of(rows.begin(), rows.end(), [&](const bench::Layout& row) { return row.base == name; });
  };
  for (const bench::Layout& layout : rows) {
    if (!layout.why_not.empty()) {
      if (!flags.json) fmt::print("{:<38} not run: {}\n", layout.name, layout.why_not);
      continue;
    }
    const bench::LayoutResult& result = results[layout.name] = bench::run_layout(
        flags.problem, layout, folder.path(), layout.name == layout.base ? nullptr : &results.at(layout.base));
    print(layout, result, verdict(layout, result), flags.json);
    if (flags.keep.empty() && !is_base(layout.name)) std::filesystem::remove_all(result.run);
    (layout.is_control ? equal_controls : broken) += !result.is_as_promised;
    if (layout.is_control) ++controls;
    else if (layout.name != layout.base) ++layouts, losses += result.diff.steps.size(), tensors += result.diff.tensors;
  }
  if (flags.json) {
    const nlohmann::ordered_json sums = {{"layouts", layouts},
                                         {"losses", losses},
                                         {"tensors", tensors},
                                         {"controls", controls},
                                         {"not_as_promised", broken + equal_controls}};
    fmt::print("{}\n", sums.dump());
  } else if (broken + equal_controls == 0) {
    fmt::print("{} layouts, {} losses, {} tensors: same bits; {} controls differ, as they must\n", layouts, losses,
               tensors, controls);
  } else {
    fmt::print("{} of {} layouts are not as promised, {} of {} controls do not{}\n", broken, layouts, equal_controls,
               controls, flags.keep.empty() ? "; --keep FOLDER keeps the runs for `tutti diff`" : "");
  }
  return broken + equal_controls == 0 ? 0 : 1;
}

}  // namespace

void add_bench_layouts(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<LayoutsFlags>();
  CLI::App* sub =
      bench.add_subcommand("layouts",
                           "Train one configuration on many layouts and compare every loss, gradient norm and weight "
                           "with one rank's, bit by bit, and the work, memory and bytes "
                           "of a rank with its share; exit status 1 when one differs. Any key as --section.key=value");
  sub->add_option("config", flags->problem.config, "Configuration, e.g. configs/quickstart.toml")->required();
  sub->add_option("--steps", flags->problem.steps, "Steps of each run")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  sub->add_flag("--all", flags->problem.all, "More layouts, and bf16 and dropout with references of their own");
  sub->add_option("--only", flags->problem.only, "Names of rows: these alone, and those that they are compared with")
      ->delimiter(',')
      ->take_all();
  sub->add_option("--keep", flags->keep, "An empty folder for the runs, which stay there");
  sub->add_flag("--json", flags->json,
                "One object per line: layout, control, loss_hex, grad_norm_hex, digest, step_ms, of rank 0 "
                "product_flops, peak_bytes and sent_bytes a step beside planned_peak_bytes and planned_sent_bytes, "
                "losses, tensors, verdict, as_promised; sums in the last");
  sub->allow_extras();
  sub->callback([sub, flags, &action] {
    flags->problem.overrides = overrides_of(*sub);
    action = [flags] { return run_layouts(*flags); };
  });
}

}  // namespace tutti::cli

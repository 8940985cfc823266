// `tutti bench dlrm`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "bench/dlrm_bench.h"
#include "cli/command.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::cli {

void add_bench_dlrm(CLI::App& bench, Action& action);

namespace {

struct DlrmFlags {
  bench::DlrmProblem problem;
  bool json = false;
};

void print(const bench::DlrmRow& r, const DlrmFlags& flags) {
  if (!flags.json) {
    std::printf("%-9s %9.2f %9.2f %9.2f %9.2f %9.2f %11.0f\n", r.mode.c_str(), r.step.min_us / 1e3,
                r.step.median_us / 1e3, r.look_up.median_us / 1e3, r.dense.median_us / 1e3, r.tables.median_us / 1e3,
                r.examples_per_s);
    return;
  }
  JsonWriter line;
  line.object().member("mode", r.mode).member("threads", static_cast<int64_t>(flags.problem.threads));
  line.member("examples", flags.problem.batch).member("min_us", r.step.min_us).member("median_us", r.step.median_us);
  line.member("look_up_us", r.look_up.median_us).member("dense_us", r.dense.median_us);
  line.member("tables_us", r.tables.median_us).member("examples_per_s", r.examples_per_s);
  line.member("parameters", r.parameters).member("first_loss", r.first_loss).member("last_loss", r.last_loss);
  std::printf("%s\n", line.end().take().c_str());
}

}  // namespace

void add_bench_dlrm(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<DlrmFlags>();
  bench::DlrmProblem& p = flags->problem;
  CLI::App* sub = bench.add_subcommand(
      "dlrm", "Training steps of a click model on random examples: lookups, layers, AdamW, tables; eager and compiled");
  const CLI::Range sizes(1, 1 << 24);
  sub->add_option("--tables", p.tables, "Tables, one row of each for every example")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--rows", p.rows, "Rows of the largest table; the smallest has 10")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  sub->add_option("--dim", p.dim, "Columns of a table")->check(CLI::Range(1, 4096))->capture_default_str();
  sub->add_option("--bottom", p.bottom, "Features of the bottom layers but the last")
      ->delimiter(',')
      ->check(sizes)
      ->capture_default_str();
  sub->add_option("--top", p.top, "Features of the top layers but the last")
      ->delimiter(',')
      ->check(sizes)
      ->capture_default_str();
  sub->add_option("--batch", p.batch, "Examples of a step")->check(sizes)->capture_default_str();
  sub->add_option("--shards", p.shards, "Virtual shards of a step, a power of two that divides the batch")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  sub->add_option("--skew", p.skew, "0: all rows are as likely; 1: as Zipf's law has it")
      ->check(CLI::Range(0.0, 4.0))
      ->capture_default_str();
  sub->add_option("--steps", p.steps, "Measured steps, after two for warming up")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  sub->add_option("-t,--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--mode", p.mode, "eager, compiled, or both, whose losses are compared")->capture_default_str();
  sub->add_flag("--json", flags->json,
                "One object per line: mode, threads, examples, min_us and median_us of a step, look_up_us, dense_us, "
                "tables_us, examples_per_s, parameters, first_loss, last_loss");
  sub->callback([flags, &action] {
    action = [flags] {
      const std::vector<bench::DlrmRow> rows = bench::run_dlrm_bench(flags->problem);
      if (!flags->json)
        std::printf("%-9s %9s %9s %9s %9s %9s %11s\n", "mode", "ms min", "median", "look up", "layers", "tables",
                    "examples/s");
      for (const bench::DlrmRow& row : rows) print(row, *flags);
      return 0;
    };
  });
}

}  // namespace tutti::cli

// `tutti bench strict`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/strict_bench.h"
#include "cli/command.h"
#include "tutti/core/error.h"

namespace tutti::cli {

void add_bench_strict(CLI::App& bench, Action& action);

namespace {

struct StrictFlags {
  bench::StrictCase problem;
  bool json = false, cpu_time = false;
};

void print(const bench::StrictRow& r, const StrictFlags& flags) {
  if (flags.json) {
    const nlohmann::ordered_json line = {{"op", r.op},
                                         {"shape", r.shape},
                                         {"dtype", "f32"},
                                         {"threads", flags.problem.threads},
                                         {"baseline", r.baseline},
                                         {"strict_min_us", r.strict.min_us},
                                         {"strict_median_us", r.strict.median_us},
                                         {"free_min_us", r.free.min_us},
                                         {"free_median_us", r.free.median_us},
                                         {"ratio", r.ratio()},
                                         {"gbps", r.gbps},
                                         {"gflops", r.gflops},
                                         {"verified", r.verified}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%-20s %-22s %11.1f %11.1f %11.1f %11.1f %6.2f %7.1f %8.1f  %s%s\n", r.op.c_str(), r.shape.c_str(),
                r.strict.min_us, r.strict.median_us, r.free.min_us, r.free.median_us, r.ratio(), r.gbps, r.gflops,
                r.baseline.c_str(), r.verified ? "" : "  WRONG");
  }
}

}  // namespace

void add_bench_strict(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<StrictFlags>();
  bench::StrictCase& p = flags->problem;
  CLI::App* sub = bench.add_subcommand(
      "strict",
      "The cost of a fixed summation order: ops compared with the fastest loops that have none, in turns; f32");
  sub->add_option("--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--only", p.only, "Only ops whose name contains this");
  sub->add_flag("--cpu-time", flags->cpu_time,
                "Processor time of the thread, for a machine that does other things too; needs --threads 1");
  sub->add_flag("--small", p.small, "Sizes that check the results in a second; the times mean nothing");
  sub->add_flag("--json", flags->json,
                "One object per line: op, shape, dtype, threads, baseline, strict_min_us, strict_median_us, "
                "free_min_us, free_median_us, ratio (of the minima), gbps, gflops, verified");
  sub->callback([flags, &action] {
    action = [flags] {
      if (flags->cpu_time) flags->problem.clock = bench::MeasuredTime::thread;
      const std::vector<bench::StrictRow> rows = bench::run_strict_bench(flags->problem);
      TUTTI_CHECK(!rows.empty(), "no op of this bench has '{}' in its name; leave --only out to see them all",
                  flags->problem.only);
      if (!flags->json)
        std::printf("%-20s %-22s %11s %11s %11s %11s %6s %7s %8s  %s\n", "op", "shape", "strict min", "median us",
                    "free min", "median us", "ratio", "gbps", "gflops", "free is");
      bool verified = true;
      for (const bench::StrictRow& row : rows) {
        print(row, *flags);
        verified = verified && row.verified;
      }
      return verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

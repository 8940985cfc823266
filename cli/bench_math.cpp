// `tutti bench math`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/math_bench.h"
#include "cli/command.h"
#include "tutti/core/error.h"

namespace tutti::cli {

void add_bench_math(CLI::App& bench, Action& action);

namespace {

struct MathFlags {
  bench::MathCase problem;
  bool json = false, cpu_time = false;
};

void print(const bench::MathRow& r, const MathFlags& flags) {
  const double ratio = r.libm.min_us / r.tutti.min_us;
  if (flags.json) {
    const nlohmann::ordered_json line = {{"op", r.op},
                                         {"dtype", name_of(r.dtype)},
                                         {"threads", flags.problem.threads},
                                         {"where", r.where},
                                         {"elements", r.elements},
                                         {"min_us", r.tutti.min_us},
                                         {"median_us", r.tutti.median_us},
                                         {"ns", r.ns()},
                                         {"gbps", r.gbps},
                                         {"libm_ns", r.libm_ns()},
                                         {"ratio", ratio},
                                         {"ulp", r.ulp},
                                         {"verified", r.verified}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%-12s %-5s %-7s %9.3f %9.3f %8.1f %9.2f %7.1f %8.2f%s\n", r.op.c_str(),
                std::string(name_of(r.dtype)).c_str(), r.where.c_str(), r.ns(),
                r.tutti.median_us * 1e3 / static_cast<double>(r.elements), r.gbps, r.libm_ns(), ratio, r.ulp,
                r.verified ? "" : "  WRONG");
  }
}

}  // namespace

void add_bench_math(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<MathFlags>();
  bench::MathCase& p = flags->problem;
  CLI::App* sub = bench.add_subcommand("math",
                                       "Nanoseconds per element of exp, sin, pow and the others, compared with the "
                                       "functions of the C library, in turns; f32 and f64");
  sub->add_option("--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--only", p.only, "Only functions whose name contains this");
  sub->add_flag("--cpu-time", flags->cpu_time,
                "Processor time of the thread, for a machine that does other things too; needs --threads 1");
  sub->add_flag("--small", p.small, "Few elements, which check the results; the times mean nothing");
  sub->add_flag("--json", flags->json,
                "One object per line: op, dtype, threads, where (cache: 64 K elements, memory: 16 M), elements, "
                "min_us, median_us, ns (per element, minimum), gbps, libm_ns, ratio (of the "
                "minima, C library by Tutti), ulp (largest error of the array in the cache), verified; 0 where the C "
                "library has no such function");
  sub->callback([flags, &action] {
    action = [flags] {
      if (flags->cpu_time) flags->problem.clock = bench::MeasuredTime::thread;
      const std::vector<bench::MathRow> rows = bench::run_math_bench(flags->problem);
      TUTTI_CHECK(!rows.empty(), "no function of this bench has '{}' in its name; leave --only out to see them all",
                  flags->problem.only);
      if (!flags->json)
        std::printf("%-12s %-5s %-7s %9s %9s %8s %9s %7s %8s\n", "function", "dtype", "where", "ns min", "median",
                    "gbps", "libm ns", "ratio", "ulp");
      bool verified = true;
      for (const bench::MathRow& row : rows) {
        print(row, *flags);
        verified = verified && row.verified;
      }
      return verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

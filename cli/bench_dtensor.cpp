// `tutti bench dtensor`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/dtensor_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_dtensor(CLI::App& bench, Action& action);

void add_bench_dtensor(CLI::App& bench, Action& action) {
  auto problem = std::make_shared<bench::DTensorCase>();
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = bench.add_subcommand(
      "dtensor", "Microseconds of ops on distributed tensors, compared with the same op on the part of a rank");
  sub->add_option("--ranks", problem->ranks, "Ranks, as threads of one thread each")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_flag("--small", problem->small, "Few calls, which check that all of it runs; the times mean nothing");
  sub->add_flag("--json", *json,
                "One object per line: op, layout, ranks, plain_us, plain_median_us (0: no plain form), dtensor_us, "
                "dtensor_median_us, beyond_us (of the minima)");
  sub->callback([problem, json, &action] {
    action = [problem, json] {
      if (!*json)
        std::printf("%-32s %-24s %12s %12s %12s %12s\n", "op", "layout", "plain us", "median", "dtensor us", "median");
      bench::run_dtensor_bench(*problem, [&](const bench::DTensorRow& r) {
        if (*json) {
          const nlohmann::ordered_json line = {{"op", r.op},
                                               {"layout", r.layout},
                                               {"ranks", problem->ranks},
                                               {"plain_us", r.plain.min_us},
                                               {"plain_median_us", r.plain.median_us},
                                               {"dtensor_us", r.dtensor.min_us},
                                               {"dtensor_median_us", r.dtensor.median_us},
                                               {"beyond_us", r.dtensor.min_us - r.plain.min_us}};
          std::printf("%s\n", line.dump().c_str());
        } else {
          std::printf("%-32s %-24s %12.2f %12.2f %12.2f %12.2f\n", r.op.c_str(), r.layout.c_str(), r.plain.min_us,
                      r.plain.median_us, r.dtensor.min_us, r.dtensor.median_us);
        }
        std::fflush(stdout);
      });
      return 0;
    };
  });
}

}  // namespace tutti::cli

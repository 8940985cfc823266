// `tutti bench choice`: the choice engine over a made-up space of 390,000 candidates.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/choice_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_choice(CLI::App& bench, Action& action);

namespace {

void print(const bench::ChoiceResult& result, bool json) {
  if (!json)
    std::printf("%-8s %-7s %11s %15s %8s %12s %12s\n", "mode", "call", "candidates", "predicate_calls", "left",
                "min_ms", "median_ms");
  for (const bench::ChoiceTiming& t : result.timings) {
    const double min_ms = t.time.min_us * 1e-3, median_ms = t.time.median_us * 1e-3;
    if (json) {
      const nlohmann::ordered_json line = {{"op", "choice"},
                                           {"mode", t.mode},
                                           {"call", t.call},
                                           {"candidates", t.candidates},
                                           {"predicate_calls", t.predicate_calls},
                                           {"left", t.left},
                                           {"min_ms", min_ms},
                                           {"median_ms", median_ms},
                                           {"verified", result.verified}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-8s %-7s %11lld %15lld %8lld %12.6f %12.6f\n", t.mode.c_str(), t.call.c_str(),
                  static_cast<long long>(t.candidates), static_cast<long long>(t.predicate_calls),
                  static_cast<long long>(t.left), min_ms, median_ms);
    }
  }
  if (!result.verified)
    std::fprintf(stderr, "tutti: bench choice: the modes disagree, or a repeated call asked a predicate\n");
}

}  // namespace

void add_bench_choice(CLI::App& bench, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* choice = bench.add_subcommand(
      "choice", "Choosing one of 390,000 made-up kernels: predicate calls and milliseconds, the first time and again");
  choice->add_flag(
      "--json", *json,
      "One object per line: op, mode, call, candidates, predicate_calls, left, min_ms, median_ms, verified");
  choice->callback([json, &action] {
    action = [json] {
      const bench::ChoiceResult result = bench::time_choice();
      print(result, *json);
      return result.verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

// `tutti bench fsdp`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/fsdp_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_fsdp(CLI::App& bench, Action& action);

void add_bench_fsdp(CLI::App& bench, Action& action) {
  auto problem = std::make_shared<bench::FsdpCase>();
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = bench.add_subcommand(
      "fsdp", "Microseconds of what divided parameters need: whole copies, reduced gradients, checkpoints");
  sub->add_option("--ranks", problem->ranks, "Ranks, as threads of one thread each")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_option("--transport", problem->transport, "Transport of the ranks: shm, threads or gloo")
      ->capture_default_str();
  sub->add_option("--group-bytes", problem->group_bytes, "Bytes of the f32 parameters that are made whole and reduced")
      ->check(CLI::Range(int64_t{1} << 16, int64_t{1} << 34))
      ->capture_default_str();
  sub->add_option("--saved-bytes", problem->saved_bytes, "Bytes of the f32 parameters of the checkpoint")
      ->check(CLI::Range(int64_t{1} << 16, int64_t{1} << 34))
      ->capture_default_str();
  sub->add_option("--folder", problem->folder,
                  "Where the checkpoint is written; default: the folder of temporary files");
  sub->add_flag("--small", problem->small,
                "Little memory and few calls, which check that all of it runs; the times mean nothing");
  sub->add_flag("--json", *json, "One object per line: what, ranks, transport, bytes, min_us, median_us");
  sub->callback([problem, json, &action] {
    action = [problem, json] {
      if (!*json) std::printf("%-52s %12s %12s %12s\n", "what", "MiB", "us", "median");
      bench::run_fsdp_bench(*problem, [&](const bench::FsdpRow& r) {
        if (*json) {
          const nlohmann::ordered_json line = {
              {"what", r.what},    {"ranks", problem->ranks}, {"transport", problem->transport},
              {"bytes", r.nbytes}, {"min_us", r.time.min_us}, {"median_us", r.time.median_us}};
          std::printf("%s\n", line.dump().c_str());
        } else {
          std::printf("%-52s %12.2f %12.2f %12.2f\n", r.what.c_str(), static_cast<double>(r.nbytes) / (1 << 20),
                      r.time.min_us, r.time.median_us);
        }
        std::fflush(stdout);
      });
      return 0;
    };
  });
}

}  // namespace tutti::cli

// `tutti bench train`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/train_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_train(CLI::App& bench, Action& action);

namespace {

struct BenchTrainFlags {
  bench::TrainProblem problem;
  std::string dtype = "f32";
  bool json = false;
};

void print(const bench::TrainRow& r, const BenchTrainFlags& flags) {
  const double share = 100 * r.gflops / r.peak_gflops;
  if (!flags.json) {
    std::printf("%-9s %9.2f %9.2f %9.2f %9.2f %9.2f %10.0f %8.1f %6.1f %9.1f %9.1f\n", r.mode.c_str(),
                r.step.min_us / 1e3, r.step.median_us / 1e3, r.shard.median_us / 1e3, r.norm.median_us / 1e3,
                r.optimizer.median_us / 1e3, r.tokens_per_s, r.gflops, share, r.peak_mbytes, r.peak_rss_mbytes);
    return;
  }
  const nlohmann::ordered_json line = {{"model", flags.problem.model},
                                       {"tokens", flags.problem.rows * flags.problem.sequence_length},
                                       {"dtype", flags.dtype},
                                       {"threads", flags.problem.threads},
                                       {"mode", r.mode},
                                       {"min_us", r.step.min_us},
                                       {"median_us", r.step.median_us},
                                       {"shard_us", r.shard.median_us},
                                       {"norm_us", r.norm.median_us},
                                       {"optimizer_us", r.optimizer.median_us},
                                       {"tokens_per_s", r.tokens_per_s},
                                       {"gflops", r.gflops},
                                       {"peak_gflops", r.peak_gflops},
                                       {"peak_mbytes", r.peak_mbytes},
                                       {"rss_mbytes", r.rss_mbytes},
                                       {"peak_rss_mbytes", r.peak_rss_mbytes},
                                       {"parameters", r.parameters},
                                       {"first_loss", r.first_loss},
                                       {"last_loss", r.last_loss}};
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace

void add_bench_train(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<BenchTrainFlags>();
  CLI::App* sub = bench.add_subcommand(
      "train", "Training steps of a model on random tokens: forward and backward, norm, AdamW; eager and compiled");
  sub->add_option("--model", flags->problem.model, "A model flavor, e.g. quickstart or debugmodel")
      ->capture_default_str();
  sub->add_option("--rows", flags->problem.rows, "Sequences of a step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sub->add_option("--sequence-length", flags->problem.sequence_length, "Tokens of a sequence")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  sub->add_option("--steps", flags->problem.steps, "Measured steps, after two for warming up")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  sub->add_option("--threads", flags->problem.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option(
         "--dtype", flags->dtype,
         "f32 or bf16: in which forward and backward compute, as training.mixed_precision_param; masters are f32")
      ->capture_default_str();
  sub->add_option("--mode", flags->problem.mode, "eager, compiled, or both, whose weights are compared")
      ->capture_default_str();
  sub->add_flag("--json", flags->json,
                "One object per line: model, tokens, dtype, threads, mode, min_us and median_us of a step, shard_us, "
                "norm_us, optimizer_us, ...");
  sub->callback([flags, &action] {
    action = [flags] {
      flags->problem.dtype = dtype_from_name(flags->dtype);
      if (!flags->json)
        std::printf("%-9s %9s %9s %9s %9s %9s %10s %8s %6s %9s %9s\n", "mode", "min_ms", "median_ms", "shard_ms",
                    "norm_ms", "adamw_ms", "tokens/s", "gflops", "% peak", "peak_MiB", "RSS_MiB");
      for (const bench::TrainRow& row : bench::run_train_bench(flags->problem)) print(row, *flags);
      return 0;
    };
  });
}

}  // namespace tutti::cli

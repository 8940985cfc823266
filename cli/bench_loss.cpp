// `tutti bench loss`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/loss_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_loss(CLI::App& bench, Action& action);

namespace {

struct LossFlags {
  bench::LossCase problem;
  std::string dtype = "f32", gradients = "recomputed";
  bool json = false;
};

void print(const bench::LossRow& r, const LossFlags& flags) {
  const bench::LossCase& p = flags.problem;
  if (flags.json) {
    const nlohmann::ordered_json line = {{"op", r.what},
                                         {"pass", r.pass},
                                         {"tokens", p.tokens},
                                         {"features", p.features},
                                         {"vocab", p.vocab},
                                         {"dtype", flags.dtype},
                                         {"threads", p.threads},
                                         {"max_bytes", p.max_bytes},
                                         {"min_us", r.timing.time.min_us},
                                         {"median_us", r.timing.time.median_us},
                                         {"min_cpu_us", r.timing.min_cpu_us},
                                         {"gflops", r.gflops},
                                         {"peak_gflops", r.peak_gflops},
                                         {"peak_mbytes", r.peak_mbytes},
                                         {"held_mbytes", r.held_mbytes},
                                         {"verified", r.verified}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf(
        "%-22s %-5s %-14s %-10s min %9.1f ms  median %9.1f ms  cpu %9.1f ms  %6.1f GFLOP/s a core (peak %.1f)  peak "
        "%8.1f MiB, held %8.1f MiB%s\n",
        bench::shape_of(p).c_str(), flags.dtype.c_str(), r.pass.c_str(), r.what.c_str(), r.timing.time.min_us / 1e3,
        r.timing.time.median_us / 1e3, r.timing.min_cpu_us / 1e3, r.gflops, r.peak_gflops, r.peak_mbytes, r.held_mbytes,
        r.verified ? "" : "  WRONG");
  }
  std::fflush(stdout);
}

}  // namespace

void add_bench_loss(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<LossFlags>();
  bench::LossCase& p = flags->problem;
  CLI::App* sub = bench.add_subcommand("loss",
                                       "Projection and cross entropy in chunks compared with linear and cross_entropy: "
                                       "time and memory, forward and with gradients");
  sub->add_option("--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--tokens", p.tokens, "Rows")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  sub->add_option("--features", p.features, "Features of a row")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  sub->add_option("--vocab", p.vocab, "Classes")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  sub->add_option("--dtype", flags->dtype, "f32, f64, bf16 or f16")->capture_default_str();
  sub->add_option("--max-bytes", p.max_bytes, "Bound on the memory of the loss in chunks, bytes")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->capture_default_str();
  sub->add_option("--gradients", flags->gradients,
                  "Gradients of the loss in chunks: recomputed, or in-forward, measured alongside")
      ->check(CLI::IsMember({"recomputed", "in-forward"}))
      ->capture_default_str();
  sub->add_option("--repeats", p.repeats, "Timed calls of each row")->check(CLI::Range(1, 1000))->capture_default_str();
  sub->add_option("--only", p.only,
                  "Only passes whose name contains this: forward, all gradients, frozen weight, frozen input");
  sub->add_flag("--json", flags->json,
                "One object per line: op, pass, tokens, features, vocab, dtype, threads, max_bytes, min_us, median_us, "
                "min_cpu_us, gflops, peak_gflops, peak_mbytes, held_mbytes, verified");
  sub->callback([flags, &action] {
    action = [flags] {
      flags->problem.dtype = dtype_from_name(flags->dtype);
      flags->problem.in_forward = flags->gradients == "in-forward";
      bool verified = true;
      const std::vector<bench::LossRow> rows = bench::run_loss_bench(flags->problem);
      TUTTI_CHECK(!rows.empty(), "no pass of this bench has '{}' in its name; leave --only out to see them all",
                  flags->problem.only);
      for (const bench::LossRow& row : rows) {
        print(row, *flags);
        verified = verified && row.verified;
      }
      return verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

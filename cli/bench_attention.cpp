// `tutti bench attention`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/attention_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_attention(CLI::App& bench, Action& action);

namespace {

struct AttentionFlags {
  bench::AttentionCase problem;
  std::string dtype = "f32";
  bool json = false, full = false;
};

void print(const bench::AttentionRow& r, const AttentionFlags& flags) {
  const bench::AttentionCase& p = flags.problem;
  if (flags.json) {
    const nlohmann::ordered_json line = {{"op", r.what},
                                         {"pass", r.pass},
                                         {"shape", bench::shape_of(p)},
                                         {"causal", p.causal},
                                         {"dtype", flags.dtype},
                                         {"threads", p.threads},
                                         {"min_us", r.time.min_us},
                                         {"median_us", r.time.median_us},
                                         {"gflops", r.gflops},
                                         {"peak_gflops", r.peak_gflops},
                                         {"gbps", r.gbps},
                                         {"peak_mbytes", r.peak_mbytes},
                                         {"verified", r.verified}};
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  std::printf(
      "%-24s %-5s %-10s %-17s min %9.2f ms  median %9.2f ms  %7.1f GFLOP/s (%5.1f %% of %.1f)  %6.1f GB/s  peak %8.1f "
      "MiB%s\n",
      bench::shape_of(p).c_str(), flags.dtype.c_str(), r.what.c_str(), r.pass.c_str(), r.time.min_us / 1e3,
      r.time.median_us / 1e3, r.gflops, 100 * r.gflops / r.peak_gflops, r.peak_gflops, r.gbps, r.peak_mbytes,
      r.verified ? "" : "  WRONG");
}

}  // namespace

void add_bench_attention(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<AttentionFlags>();
  bench::AttentionCase& p = flags->problem;
  p.key_heads = p.keys = 0;
  CLI::App* sub = bench.add_subcommand(
      "attention",
      "Attention compared with matmul, softmax, matmul; forward and with backward, with the peak of the machine");
  sub->add_option("--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--batch", p.batch, "Sequences")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  sub->add_option("--heads", p.heads, "Query heads")->check(CLI::Range(1, 4096))->capture_default_str();
  sub->add_option("--key-heads", p.key_heads,
                  "Heads of keys and values, which groups of query heads share; 0: as many as --heads")
      ->capture_default_str();
  sub->add_option("--length", p.length, "Queries of a sequence")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  sub->add_option("--keys", p.keys, "Keys of a sequence; 0: as many as --length")->capture_default_str();
  sub->add_option("--dim", p.dim, "Head dim")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--window", p.window, "Keys seen before the query's own; -1: all")->capture_default_str();
  sub->add_option("--dtype", flags->dtype, "f32, f64, bf16 or f16")->capture_default_str();
  sub->add_flag("--full", flags->full, "Every query sees every key, instead of causal attention");
  sub->add_flag("--json", flags->json,
                "One object per line: op, pass, shape, causal, dtype, threads, min_us, median_us, gflops, peak_gflops, "
                "gbps, peak_mbytes, verified");
  sub->callback([flags, &action] {
    action = [flags] {
      bench::AttentionCase& problem = flags->problem;
      problem.dtype = dtype_from_name(flags->dtype);
      problem.causal = !flags->full;
      if (problem.key_heads == 0) problem.key_heads = problem.heads;
      if (problem.keys == 0) problem.keys = problem.length;
      bool verified = true;
      for (const bench::AttentionRow& row : bench::run_attention_bench(problem)) {
        print(row, *flags);
        verified = verified && row.verified;
      }
      return verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

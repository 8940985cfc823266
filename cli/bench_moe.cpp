// `tutti bench moe`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/moe_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_moe(CLI::App& bench, Action& action);

namespace {

struct MoEFlags {
  bench::MoECase problem;
  std::string dtype = "f32";
  bool json = false;
};

void print(const bench::MoERow& r, const MoEFlags& flags) {
  const bench::MoECase& p = flags.problem;
  if (flags.json) {
    const nlohmann::ordered_json line = {{"what", r.what}, {"way", r.way}, {"tokens", p.tokens}, {"dim", p.dim}, {"hidden_dim", p.hidden_dim}, {"experts", p.experts}, {"top_k", p.top_k},
                                         {"dtype", flags.dtype}, {"threads", p.threads}, {"max_over_mean", r.max_over_mean}, {"min_us", r.time.min_us}, {"median_us", r.time.median_us},
                                         {"gflops", r.gflops}, {"rate", r.rate}, {"verified", r.verified}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%-9s %-7s %-5s max/mean %5.2f  min %9.2f ms  median %9.2f ms  %6.1f GFLOP/s  %.2f of dense%s\n", r.what.c_str(), r.way.c_str(), flags.dtype.c_str(), r.max_over_mean,
                r.time.min_us / 1e3, r.time.median_us / 1e3, r.gflops, r.rate, r.verified ? "" : "  WRONG");
  }
  std::fflush(stdout);
}

}  // namespace

void add_bench_moe(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<MoEFlags>();
  bench::MoECase& p = flags->problem;
  CLI::App* sub = bench.add_subcommand("moe", "Grouped products over unequal loads beside one product of the same work; a layer of experts beside a dense one");
  const auto count = [&](const char* flag, int64_t& value, const char* what) { sub->add_option(flag, value, what)->check(CLI::Range(1, 1 << 24))->capture_default_str(); };
  sub->add_option("--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  count("--tokens", p.tokens, "Tokens of a batch");
  count("--dim", p.dim, "Features of a token");
  count("--hidden-dim", p.hidden_dim, "Hidden features of an expert");
  count("--experts", p.experts, "Experts");
  count("--top-k", p.top_k, "Experts of each token");
  sub->add_option("--dtype", flags->dtype, "f32, bf16 or f16")->check(CLI::IsMember({"f32", "bf16", "f16"}))->capture_default_str();
  sub->add_option("--total-ms", p.total_ms, "Milliseconds for each comparison")->check(CLI::Range(1.0, 1e7))->capture_default_str();
  sub->add_flag("--json", flags->json, "One object per line: what, way, tokens, dim, hidden_dim, experts, top_k, dtype, threads, max_over_mean, min_us, median_us, gflops, rate, verified");
  sub->callback([flags, &action] {
    action = [flags] {
      flags->problem.dtype = dtype_from_name(flags->dtype);
      bool verified = true;
      for (const bench::MoERow& row : bench::run_moe_bench(flags->problem)) {
        print(row, *flags);
        verified = verified && row.verified;
      }
      return verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

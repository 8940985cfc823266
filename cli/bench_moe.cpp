// `tutti bench moe`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/dispatch_bench.h"
#include "bench/moe_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_moe(CLI::App& bench, Action& action);

namespace {

struct MoEFlags {
  bench::MoECase problem;
  std::vector<int> ranks;
  std::string transport = "threads";
  int steps = 20;
  std::string dtype = "f32";
  bool json = false;
};

void print(const bench::MoERow& r, const MoEFlags& flags) {
  const bench::MoECase& p = flags.problem;
  if (flags.json) {
    const nlohmann::ordered_json line = {{"what", r.what},
                                         {"way", r.way},
                                         {"tokens", p.tokens},
                                         {"dim", p.dim},
                                         {"hidden_dim", p.hidden_dim},
                                         {"experts", p.experts},
                                         {"top_k", p.top_k},
                                         {"dtype", flags.dtype},
                                         {"threads", p.threads},
                                         {"max_over_mean", r.max_over_mean},
                                         {"min_us", r.time.min_us},
                                         {"median_us", r.time.median_us},
                                         {"gflops", r.gflops},
                                         {"rate", r.rate},
                                         {"verified", r.verified}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%-9s %-7s %-5s max/mean %5.2f  min %9.2f ms  median %9.2f ms  %6.1f GFLOP/s  %.2f of dense%s\n",
                r.what.c_str(), r.way.c_str(), flags.dtype.c_str(), r.max_over_mean, r.time.min_us / 1e3,
                r.time.median_us / 1e3, r.gflops, r.rate, r.verified ? "" : "  WRONG");
  }
  std::fflush(stdout);
}

void print(const bench::DispatchRow& r, const MoEFlags& flags) {
  const bench::MoECase& p = flags.problem;
  if (flags.json) {
    const nlohmann::ordered_json line = {{"what", "dispatch"},
                                         {"way", r.way},
                                         {"load", r.load},
                                         {"ranks", r.ranks},
                                         {"transport", flags.transport},
                                         {"tokens", p.tokens},
                                         {"dim", p.dim},
                                         {"hidden_dim", p.hidden_dim},
                                         {"experts", p.experts},
                                         {"top_k", p.top_k},
                                         {"dtype", flags.dtype},
                                         {"min_us", r.time.min_us},
                                         {"median_us", r.time.median_us},
                                         {"kernels", r.kernels},
                                         {"barriers", r.barriers},
                                         {"sent_bytes", r.sent_bytes},
                                         {"copies", r.copies},
                                         {"host_reads", r.host_reads},
                                         {"room_bytes", r.room_bytes},
                                         {"verified", r.verified}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf(
        "%d ranks  %-5s %-15s min %9.2f ms  median %9.2f ms  %3lld kernels  %2lld barriers  %7.2f MiB sent  %lld "
        "copies out  %lld host reads%s\n",
        r.ranks, r.load.c_str(), r.way.c_str(), r.time.min_us / 1e3, r.time.median_us / 1e3,
        static_cast<long long>(r.kernels), static_cast<long long>(r.barriers),
        static_cast<double>(r.sent_bytes) / (1 << 20), static_cast<long long>(r.copies),
        static_cast<long long>(r.host_reads), r.verified ? "" : "  WRONG");
  }
  std::fflush(stdout);
}

bool run_dispatchers(const MoEFlags& flags) {
  bool verified = true;
  for (const int ranks : flags.ranks) {
    bench::run_dispatch_bench(
        {.layer = flags.problem, .ranks = ranks, .transport = flags.transport, .steps = flags.steps},
        [&](const bench::DispatchRow& row) {
          print(row, flags);
          verified = verified && row.verified;
        });
  }
  return verified;
}

}  // namespace

void add_bench_moe(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<MoEFlags>();
  bench::MoECase& p = flags->problem;
  CLI::App* sub = bench.add_subcommand(
      "moe",
      "Grouped products over unequal loads beside one product of the same work; a layer of experts beside a dense one");
  const auto count = [&](const char* flag, int64_t& value, const char* what) {
    sub->add_option(flag, value, what)->check(CLI::Range(1, 1 << 24))->capture_default_str();
  };
  sub->add_option("--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  count("--tokens", p.tokens, "Tokens of a batch");
  count("--dim", p.dim, "Features of a token");
  count("--hidden-dim", p.hidden_dim, "Hidden features of an expert");
  count("--experts", p.experts, "Experts");
  count("--top-k", p.top_k, "Experts of each token");
  sub->add_option("--dtype", flags->dtype, "f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  sub->add_option("--ranks", flags->ranks,
                  "Instead of all this, a layer that so many ranks divide, by each way to bring tokens to experts; "
                  "several numbers: one after another")
      ->check(CLI::Range(1, 64))
      ->delimiter(',');
  sub->add_option("--transport", flags->transport,
                  "With --ranks: transport of the ranks, which are threads of one thread each")
      ->check(CLI::IsMember({"threads", "shm"}))
      ->capture_default_str();
  sub->add_option("--steps", flags->steps, "With --ranks: timed steps of each way")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  sub->add_option("--total-ms", p.total_ms, "Milliseconds for each comparison")
      ->check(CLI::Range(1.0, 1e7))
      ->capture_default_str();
  sub->add_flag("--json", flags->json,
                "One object per line: what, way, tokens, dim, hidden_dim, experts, top_k, dtype, threads, "
                "max_over_mean, min_us, median_us, gflops, rate, verified; with --ranks what, way, load, ranks, "
                "transport, the sizes, min_us, median_us, kernels, barriers, sent_bytes, copies, host_reads, "
                "room_bytes, verified");
  sub->callback([flags, &action] {
    action = [flags] {
      flags->problem.dtype = dtype_from_name(flags->dtype);
      if (!flags->ranks.empty()) return run_dispatchers(*flags) ? 0 : 1;
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

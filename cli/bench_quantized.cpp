// `tutti bench quantized`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "bench/quantized_bench.h"
#include "cli/command.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::cli {

void add_bench_quantized(CLI::App& bench, Action& action);

namespace {

struct QuantizedFlags {
  bench::QuantizedProblem problem;
  bool json = false;
};

void print(const bench::QuantizedRow& r, const QuantizedFlags& flags) {
  const bench::QuantizedProblem& p = flags.problem;
  const double ratio = r.f32.min_us / r.time.min_us;
  if (!flags.json) {
    std::printf("%-6s %5lld %10.1f %10.1f %8.1f %6.1f %8.1f %6.1f %8.2f%s\n", r.format.c_str(),
                static_cast<long long>(r.m), r.time.min_us, r.time.median_us, r.gops, 100 * r.peak_share,
                r.gbytes_per_s, 100 * r.read_share, ratio, r.verified ? "" : "  WRONG");
    return;
  }
  JsonWriter line;
  line.object().member("format", r.format).member("m", r.m).member("n", p.n).member("k", p.k);
  line.member("threads", static_cast<int64_t>(p.threads)).member("min_us", r.time.min_us);
  line.member("median_us", r.time.median_us).member("gops", r.gops).member("peak_share", r.peak_share);
  line.member("gbytes_per_s", r.gbytes_per_s).member("read_share", r.read_share).member("f32_us", r.f32.min_us);
  line.member("ratio", ratio).member("verified", r.verified);
  std::printf("%s\n", line.end().take().c_str());
}

}  // namespace

void add_bench_quantized(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<QuantizedFlags>();
  bench::QuantizedProblem& p = flags->problem;
  CLI::App* sub = bench.add_subcommand(
      "quantized",
      "Products with the blocks of GGUF files, in turns with those of decoded f32 weights and a plain read");
  sub->add_option("--m", p.rows, "Rows of x")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  sub->add_option("--n", p.n, "Rows of the weight")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  sub->add_option("--k", p.k, "Inner size, a multiple of 256")->check(CLI::Range(256, 1 << 20))->capture_default_str();
  sub->add_option("--only", p.only, "Only formats whose name contains this: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
  sub->add_option("-t,--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_flag("--small", p.small, "Little time, to check the results; the times mean nothing");
  sub->add_flag("--json", flags->json,
                "One object per line: format, m, n, k, threads, min_us, median_us, gops, peak_share (of 8-bit products "
                "added in 16 bits), gbytes_per_s (of the weight, which is in no cache), read_share (of a plain read), "
                "f32_us (of linear() with the decoded weight), ratio (f32_us by min_us), verified");
  sub->callback([flags, &action] {
    action = [flags] {
      RankContext::current().set_threads(flags->problem.threads);
      const std::vector<bench::QuantizedRow> rows = bench::run_quantized_bench(flags->problem);
      if (!flags->json)
        std::printf("%-6s %5s %10s %10s %8s %6s %8s %6s %8s\n", "format", "m", "us min", "median", "Gop/s", "% peak",
                    "GB/s", "% read", "over f32");
      bool verified = true;
      for (const bench::QuantizedRow& row : rows) {
        print(row, *flags);
        verified = verified && row.verified;
      }
      return verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

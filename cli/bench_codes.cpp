// `tutti bench codes`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "bench/codes_bench.h"
#include "cli/command.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::cli {

void add_bench_codes(CLI::App& bench, Action& action);

namespace {

struct CodesFlags {
  bench::CodesProblem problem;
  bool json = false;
};

void print(const bench::CodesRow& r, const CodesFlags& flags) {
  const double ratio = r.f32.min_us / r.time.min_us;
  if (!flags.json) {
    std::printf("%-17s %5lld %10.1f %10.1f %8.1f %6.1f %8.2f %8.4f\n", r.kind.c_str(), static_cast<long long>(r.m),
                r.time.min_us, r.time.median_us, r.gops, 100 * r.read_share, ratio, r.error);
    return;
  }
  JsonWriter line;
  line.object().member("kind", r.kind).member("m", r.m).member("n", flags.problem.n).member("k", flags.problem.k);
  line.member("threads", static_cast<int64_t>(flags.problem.threads)).member("min_us", r.time.min_us);
  line.member("median_us", r.time.median_us).member("gops", r.gops).member("read_share", r.read_share);
  line.member("f32_us", r.f32.min_us).member("ratio", ratio).member("error", r.error);
  std::printf("%s\n", line.end().take().c_str());
}

void print(const bench::SelfAttentionRow& r, const CodesFlags& flags) {
  const bench::CodesProblem& p = flags.problem;
  if (!flags.json) {
    std::printf(
        "self-attention in %-5s %10.1f us in %lld kernels, apart %.2f times, f32 %.2f times as long, error %.4f%s\n",
        r.kind.c_str(), r.merged.min_us, static_cast<long long>(r.kernels), r.apart.min_us / r.merged.min_us,
        r.f32.min_us / r.merged.min_us, r.error, r.has_same_bits ? "" : "  OTHER BITS");
    return;
  }
  JsonWriter line;
  line.object().member("kind", "attention_" + r.kind).member("batch", p.batch).member("length", p.length);
  line.member("heads", p.heads).member("head_dim", p.head_dim).member("threads", static_cast<int64_t>(p.threads));
  line.member("kernels", r.kernels).member("merged_us", r.merged.min_us).member("apart_us", r.apart.min_us);
  line.member("f32_us", r.f32.min_us).member("error", r.error).member("same_bits", r.has_same_bits);
  std::printf("%s\n", line.end().take().c_str());
}

}  // namespace

void add_bench_codes(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<CodesFlags>();
  bench::CodesProblem& p = flags->problem;
  CLI::App* sub = bench.add_subcommand(
      "codes", "Products with weights of int8, fp8 and int4 and a self-attention in codes, in turns with f32");
  sub->add_option("--m", p.rows, "Rows of x")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  sub->add_option("--n", p.n, "Rows of the weight")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  sub->add_option("--k", p.k, "Inner size, a multiple of 32")->check(CLI::Range(32, 1 << 16))->capture_default_str();
  sub->add_option("--batch", p.batch, "Of the self-attention")->check(CLI::Range(1, 1 << 10))->capture_default_str();
  sub->add_option("--length", p.length, "Tokens of a row")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  sub->add_option("--heads", p.heads, "Heads")->check(CLI::Range(1, 1 << 8))->capture_default_str();
  sub->add_option("--head-dim", p.head_dim, "Elements of a head")->check(CLI::Range(1, 1 << 10))->capture_default_str();
  sub->add_option("-t,--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_flag("--small", p.small, "Little time, to check the results; the times mean nothing");
  sub->add_flag("--json", flags->json,
                "One object per line: kind, m, n, k, threads, min_us, median_us, gops, read_share (of a plain read of "
                "the codes), f32_us (of linear() with the decoded weight), ratio (f32_us by min_us), error; for the "
                "self-attention kind, batch, length, heads, head_dim, threads, kernels, merged_us, apart_us, f32_us, "
                "error, same_bits");
  sub->callback([flags, &action] {
    action = [flags] {
      const bench::CodesProblem& p = flags->problem;
      TUTTI_CHECK(p.k % 32 == 0, "bench codes: k is {}; expected a multiple of 32", p.k);
      TUTTI_CHECK(p.heads * p.head_dim <= 1 << 16,
                  "bench codes: {} heads of {}; expected at most 65536 elements together", p.heads, p.head_dim);
      RankContext::current().set_threads(flags->problem.threads);
      const std::vector<bench::CodesRow> rows = bench::run_codes_bench(flags->problem);
      if (!flags->json)
        std::printf("%-17s %5s %10s %10s %8s %6s %8s %8s\n", "kind", "m", "us min", "median", "Gop/s", "% read",
                    "over f32", "error");
      bool verified = true;
      const auto expect = [&](bool is_right, const std::string& kind, const char* what) {
        if (!is_right) std::fprintf(stderr, "bench codes: %s %s\n", kind.c_str(), what);
        verified = verified && is_right;
      };
      for (const bench::CodesRow& row : rows) {
        print(row, *flags);
        expect(row.error < 0.05, row.kind, "is far from the product of the decoded weight");
      }
      for (const bench::SelfAttentionRow& row : bench::run_self_attention_bench(flags->problem)) {
        print(row, *flags);
        expect(row.has_same_bits, row.kind, "has other bits when it is merged");
        expect(row.kernels == 2, row.kind, "is not two kernels");
      }
      return verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

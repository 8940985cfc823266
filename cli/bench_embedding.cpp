// `tutti bench embedding`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "bench/embedding_bench.h"
#include "bench/hot_row_bench.h"
#include "cli/command.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::cli {

void add_bench_embedding(CLI::App& bench, Action& action);

namespace {

struct EmbeddingFlags {
  bench::EmbeddingProblem problem;
  bench::HotRowProblem hot;
  bool hot_row = false;
  bool json = false;
};

void print(const bench::EmbeddingRow& r, const bench::EmbeddingResult& all, const EmbeddingFlags& flags) {
  const double gbps = r.gbytes / r.time.min_us * 1e6;
  if (!flags.json) {
    std::printf("%-17s %10.2f %10.2f %8.2f %7.1f\n", r.kind.c_str(), r.time.min_us * 1e-3, r.time.median_us * 1e-3,
                gbps, 100 * r.read_share);
    return;
  }
  JsonWriter line;
  line.object().member("kind", r.kind).member("threads", static_cast<int64_t>(flags.problem.threads));
  line.member("entries", all.entries).member("distinct_rows", all.distinct_rows);
  line.member("min_us", r.time.min_us).member("median_us", r.time.median_us).member("gbps", gbps);
  line.member("read_share", r.read_share);
  std::printf("%s\n", line.end().take().c_str());
}

}  // namespace

void add_bench_embedding(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<EmbeddingFlags>();
  bench::EmbeddingProblem& p = flags->problem;
  CLI::App* sub = bench.add_subcommand(
      "embedding", "Lookups in many tables and fused optimizer steps, in turns with a plain read of the rows");
  sub->add_option("--tables", p.tables, "Tables of 16 to 128 columns, with bags of 1 to 50")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--rows", p.rows, "Rows of the largest table; the smallest has 10")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  sub->add_option("--bags", p.bags, "Bags of each table")->check(CLI::Range(1, 1 << 24))->capture_default_str();
  sub->add_option("--skew", p.skew, "0: all rows are as likely; 1: as Zipf's law has it")
      ->check(CLI::Range(0.0, 4.0))
      ->capture_default_str();
  sub->add_flag("--one-table", p.one_table, "One table of 64 columns and bags of 20, beside embedding_bag()");
  sub->add_flag(
      "--hot-row", flags->hot_row,
      "Instead: a table of 64 columns, 2^20 bags of one index, of which 1,000,000 are the same, beside steps by "
      "atomic additions");
  sub->add_flag("--codes", p.codes, "Also lookups in the tables in 8 and 4 bits");
  sub->add_option("-t,--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--total-ms", p.total_ms, "Milliseconds for all rounds; there are at least 3")
      ->check(CLI::Range(1.0, 1e7))
      ->capture_default_str();
  sub->add_option("--only", p.only, "Kinds to run beside `read`, as they are printed");
  sub->add_option("--write-batch", p.batch_folder, "Folder for the batch, as indices.npy, offsets.npy and tables.npy")
      ->check(CLI::ExistingDirectory);
  sub->add_flag(
      "--json", flags->json,
      "One object per line: kind, threads, entries, distinct_rows, min_us, median_us, gbps (bytes of rows that "
      "are looked up; with steps, also of gradients and of rows that are stepped), read_share (of the rate of a plain "
      "read of the rows)");
  sub->callback([flags, &action] {
    action = [flags] {
      RankContext::current().set_threads(flags->problem.threads);
      flags->hot.threads = flags->problem.threads;
      flags->hot.total_ms = flags->problem.total_ms;
      const bench::EmbeddingResult result =
          flags->hot_row ? bench::run_hot_row_bench(flags->hot) : bench::run_embedding_bench(flags->problem);
      if (!flags->json) {
        std::printf("%lld lookups of %lld rows in %.2f GB of tables\n", static_cast<long long>(result.entries),
                    static_cast<long long>(result.distinct_rows), static_cast<double>(result.table_bytes) * 1e-9);
        std::printf("%-17s %10s %10s %8s %7s\n", "kind", "ms min", "median", "GB/s", "% read");
      }
      for (const bench::EmbeddingRow& row : result.rows) print(row, result, *flags);
      if (!result.verified) std::fprintf(stderr, "bench embedding: the results have other bits than they must\n");
      return result.verified ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

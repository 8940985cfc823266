// `tutti bench package`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/package_bench.h"
#include "cli/command.h"
#include "tutti/core/error.h"

namespace tutti::cli {

void add_bench_package(CLI::App& bench, Action& action);

namespace {

namespace fs = std::filesystem;

struct PackageBenchFlags {
  int threads = 1;
  double total_ms = 6000;
  std::string only, open;
  bool json = false;
};

constexpr const char* kOpeningFormat =
    "open %lf ms, first result %lf ms, %lld bytes of the file resident, %lld its own";

// What this program says of the package in another process, which has opened none before.
bench::PackageOpening opened_elsewhere(const std::string& path) {
  const std::string command =
      fmt::format("'{}' bench package --open '{}'", fs::read_symlink("/proc/self/exe").string(), path);
  FILE* pipe = popen(command.c_str(), "r");
  TUTTI_CHECK_ENV(pipe != nullptr, "cannot start {}", command);
  bench::PackageOpening o;
  long long rss = 0, pss = 0;
  const int read = fscanf(pipe, kOpeningFormat, &o.open_ms, &o.first_ms, &rss, &pss);
  const int status = pclose(pipe);
  TUTTI_CHECK_ENV(read == 4 && status == 0, "{} failed", command);
  o.rss_bytes = rss, o.pss_bytes = pss;
  return o;
}

void print(const bench::PackageRow& r, bool json) {
  bench::PackageOpening best = opened_elsewhere(r.path);
  for (int i = 0; i < 9; ++i) {
    const bench::PackageOpening other = opened_elsewhere(r.path);
    if (other.first_ms < best.first_ms) best = other;
  }
  const double ratio = r.packaged.median_us / r.live.median_us;
  if (json) {
    const nlohmann::ordered_json line = {{"function", r.function},
                                         {"shape", r.shape},
                                         {"file_bytes", r.file_bytes},
                                         {"constant_bytes", r.constant_bytes},
                                         {"open_ms", best.open_ms},
                                         {"first_ms", best.first_ms},
                                         {"live_us", r.live.median_us},
                                         {"packaged_us", r.packaged.median_us},
                                         {"live_min_us", r.live.min_us},
                                         {"packaged_min_us", r.packaged.min_us},
                                         {"ratio", ratio},
                                         {"same_bits", r.same_bits},
                                         {"rss_bytes", best.rss_bytes},
                                         {"pss_bytes", best.pss_bytes}};
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  std::printf("%-8s %-20s %10.2f %9.2f %9.2f %12.2f %12.2f %7.3f %9.2f %9.2f%s\n", r.function.c_str(), r.shape.c_str(),
              static_cast<double>(r.file_bytes) / 1e6, best.open_ms, best.first_ms, r.live.median_us,
              r.packaged.median_us, ratio, static_cast<double>(best.rss_bytes) / 1e6,
              static_cast<double>(best.pss_bytes) / 1e6, r.same_bits ? "" : "  OTHER BITS");
}

int run(const PackageBenchFlags& flags) {
  if (!flags.open.empty()) {
    const bench::PackageOpening o = bench::open_package_once(flags.open);
    std::printf(kOpeningFormat, o.open_ms, o.first_ms, static_cast<long long>(o.rss_bytes),
                static_cast<long long>(o.pss_bytes));
    std::printf("\n");
    return 0;
  }
  std::string folder = (fs::temp_directory_path() / "tutti_bench_package_XXXXXX").string();
  TUTTI_CHECK_ENV(mkdtemp(folder.data()) != nullptr, "cannot make the folder {}", folder);
  bool same = true;
  if (!flags.json)
    std::printf("%-8s %-20s %10s %9s %9s %12s %12s %7s %9s %9s\n", "function", "shape", "file MB", "open ms",
                "first ms", "live us", "packaged us", "ratio", "rss MB", "pss MB");
  for (const bench::PackageRow& row : bench::run_package_bench(folder, flags.only, flags.threads, flags.total_ms)) {
    print(row, flags.json);
    same = same && row.same_bits;
  }
  fs::remove_all(folder);
  return same ? 0 : 1;
}

}  // namespace

void add_bench_package(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<PackageBenchFlags>();
  CLI::App* sub = bench.add_subcommand("package", "Packages beside the compiled functions that they hold");
  sub->add_option("--threads", flags->threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--total-ms", flags->total_ms, "Milliseconds for the calls of each function")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  sub->add_option("--only", flags->only, "One function: mlp, block, wide")
      ->check(CLI::IsMember({"mlp", "block", "wide"}));
  sub->add_option("--open", flags->open, "Open this package instead, call it once, and print what that took");
  sub->add_flag("--json", flags->json,
                "One object per line: function, shape, file_bytes, constant_bytes, open_ms, first_ms, live_us, "
                "packaged_us, live_min_us, packaged_min_us, ratio, same_bits, rss_bytes, pss_bytes");
  sub->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace tutti::cli

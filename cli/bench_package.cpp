// `tutti bench package`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/package_bench.h"
#include "bench/packaged_model_bench.h"
#include "cli/command.h"
#include "tutti/core/error.h"
#include "tutti/models/package_file.h"

namespace tutti::cli {

void add_bench_package(CLI::App& bench, Action& action);

namespace {

namespace fs = std::filesystem;

struct PackageBenchFlags {
  int threads = 1;
  double total_ms = 6000;
  std::string only, open, model, logits;
  bool json = false;
};

constexpr const char* kOpeningFormat =
    "open %lf ms, first result %lf ms, %lld bytes of the file resident, %lld its own";

// What this program says of the package, or of a call of the packaged model, in another process, which has opened none
// before.
bench::PackageOpening opened_elsewhere(const std::string& path, const std::string& call, int threads) {
  std::string command = fmt::format("'{}' bench package --open '{}' --threads {}",
                                    fs::read_symlink("/proc/self/exe").string(), path, threads);
  if (!call.empty()) command += " --only " + call;
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

// The fastest of some openings.
bench::PackageOpening best_opening(const std::string& path, const std::string& call, int threads, int openings) {
  bench::PackageOpening best = opened_elsewhere(path, call, threads);
  for (int i = 1; i < openings; ++i) {
    const bench::PackageOpening other = opened_elsewhere(path, call, threads);
    if (other.first_ms < best.first_ms) best = other;
  }
  return best;
}

void print(const bench::PackageRow& r, int threads, bool json) {
  const bench::PackageOpening best = best_opening(r.path, "", threads, 10);
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

void print(const bench::PackagedModelRow& r, const PackageBenchFlags& flags) {
  const bench::PackageOpening best = best_opening(flags.model, r.call, flags.threads, 3);
  const auto file_bytes = static_cast<int64_t>(fs::file_size(fs::path(flags.model) / models::kPackageFile));
  if (flags.json) {
    const nlohmann::ordered_json line = {{"function", r.call},
                                         {"tokens", r.tokens},
                                         {"keys", r.keys},
                                         {"file_bytes", file_bytes},
                                         {"open_ms", best.open_ms},
                                         {"first_ms", best.first_ms},
                                         {"packaged_us", r.time.median_us},
                                         {"packaged_min_us", r.time.min_us},
                                         {"same_bits", r.same_bits}};
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  std::printf("%-8s %8lld %8lld %10.2f %9.2f %9.2f %12.2f %12.2f%s\n", r.call.c_str(), static_cast<long long>(r.tokens),
              static_cast<long long>(r.keys), static_cast<double>(file_bytes) / 1e6, best.open_ms, best.first_ms,
              r.time.min_us, r.time.median_us, r.same_bits ? "" : "  OTHER BITS");
}

int run_model(const PackageBenchFlags& flags) {
  if (!flags.json)
    std::printf("%-8s %8s %8s %10s %9s %9s %12s %12s\n", "call", "tokens", "keys", "file MB", "open ms", "first ms",
                "min us", "median us");
  std::ofstream logits;
  if (!flags.logits.empty()) logits.open(flags.logits, std::ios::binary);
  bool same = true;
  for (const bench::PackagedModelRow& row :
       bench::run_packaged_model_bench(flags.model, flags.only, flags.threads, flags.total_ms)) {
    print(row, flags);
    same = same && row.same_bits;
    if (!flags.logits.empty())
      logits.write(reinterpret_cast<const char*>(row.logits.data()),
                   static_cast<std::streamsize>(row.logits.size() * sizeof(float)));
  }
  logits.close();
  TUTTI_CHECK_ENV(flags.logits.empty() || logits, "cannot write {}", flags.logits);
  return same ? 0 : 1;
}

bool is_call(const std::string& name) { return name == "read" || name == "write"; }

int run(const PackageBenchFlags& flags) {
  if (!flags.open.empty()) {
    const bench::PackageOpening o =
        fs::is_directory(flags.open)
            ? bench::open_packaged_model_once(flags.open, flags.only.empty() ? "read" : flags.only, flags.threads)
            : bench::open_package_once(flags.open, flags.threads);
    std::printf(kOpeningFormat, o.open_ms, o.first_ms, static_cast<long long>(o.rss_bytes),
                static_cast<long long>(o.pss_bytes));
    std::printf("\n");
    return 0;
  }
  TUTTI_CHECK(flags.only.empty() || is_call(flags.only) == !flags.model.empty(),
              "bench package: --only {} is {}; read and write are the calls of --model, and mlp, block and wide the "
              "functions without it",
              flags.only, is_call(flags.only) ? "a call of a packaged model" : "a function");
  if (!flags.model.empty()) return run_model(flags);
  std::string folder = (fs::temp_directory_path() / "tutti_bench_package_XXXXXX").string();
  TUTTI_CHECK_ENV(mkdtemp(folder.data()) != nullptr, "cannot make the folder {}", folder);
  bool same = true;
  if (!flags.json)
    std::printf("%-8s %-20s %10s %9s %9s %12s %12s %7s %9s %9s\n", "function", "shape", "file MB", "open ms",
                "first ms", "live us", "packaged us", "ratio", "rss MB", "pss MB");
  for (const bench::PackageRow& row : bench::run_package_bench(folder, flags.only, flags.threads, flags.total_ms)) {
    print(row, flags.threads, flags.json);
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
  sub->add_option("--only", flags->only, "One function: mlp, block, wide; or one call of --model: read, write")
      ->check(CLI::IsMember({"mlp", "block", "wide", "read", "write"}));
  sub->add_option("--open", flags->open,
                  "Open this package, or the packaged model in this folder, instead, call it once, and print what that "
                  "took");
  CLI::Option* model = sub->add_option("--model", flags->model,
                                       "Measure a packaged model instead, a TARGET of tutti package: reading 65 "
                                       "tokens, and writing one behind 256 keys");
  sub->add_option("--logits", flags->logits, "Write the logits of the model's calls into this file, as f32")
      ->needs(model);
  sub->add_flag("--json", flags->json,
                "One object per line: function, shape, file_bytes, constant_bytes, open_ms, first_ms, live_us, "
                "packaged_us, live_min_us, packaged_min_us, ratio, same_bits, rss_bytes, pss_bytes; of a model: "
                "function, tokens, keys, file_bytes, open_ms, first_ms, packaged_us, packaged_min_us, same_bits");
  sub->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace tutti::cli

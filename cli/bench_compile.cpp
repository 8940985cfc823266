// `tutti bench compile`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/compile_bench.h"
#include "bench/gate_bench.h"
#include "cli/command.h"

namespace tutti::cli {

void add_bench_compile(CLI::App& bench, Action& action);

namespace {

struct CompileFlags {
  int threads = 1;
  bool json = false;
  bool products = false, block = false;
  std::string model;
  int64_t rows = 2, sequence_length = 256;
  double budget = 1.0;
  std::vector<int64_t> nodes;
  bool gate = false;
  std::string only;
  double limit = 1.05;
};

// Whether every program is within the limits: of time, and that of what it needs op by op in memory.
bool print(const std::vector<bench::GateRow>& rows, double limit, bool json) {
  int above = 0, above_memory = 0;
  if (!json)
    std::printf("%-44s %12s %12s %7s %12s %12s %8s\n", "program", "eager us", "compiled us", "ratio", "eager KiB",
                "compiled KiB", "kernels");
  for (const bench::GateRow& r : rows) {
    const bool slow = r.ratio() > limit, large = r.compiled_peak > r.eager_peak;
    above += slow, above_memory += large;
    if (json) {
      const nlohmann::ordered_json line = {
          {"program", r.program}, {"eager_us", r.eager_us},           {"compiled_us", r.compiled_us},
          {"ratio", r.ratio()},   {"eager_peak_bytes", r.eager_peak}, {"compiled_peak_bytes", r.compiled_peak},
          {"kernels", r.launches}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-44s %12.2f %12.2f %6.2f%s %12.1f %11.1f%s %8lld\n", r.program.c_str(), r.eager_us, r.compiled_us,
                  r.ratio(), slow ? "*" : " ", static_cast<double>(r.eager_peak) / 1024,
                  static_cast<double>(r.compiled_peak) / 1024, large ? "*" : " ", static_cast<long long>(r.launches));
    }
  }
  if (!json)
    std::printf("%zu programs, geometric mean %.3f; %d above %.2f, %d with more memory than op by op\n", rows.size(),
                bench::mean_ratio(rows), above, limit, above_memory);
  return above == 0 && above_memory == 0;
}

void print(const std::vector<bench::GraphRow>& rows, bool json) {
  if (!json)
    std::printf("%-12s %8s %12s %12s %12s %14s\n", "graph", "nodes", "trace ms", "passes ms", "us a node",
                "first time ms");
  for (const bench::GraphRow& r : rows) {
    const double us_a_node = 1e3 * (r.trace_ms + r.passes_ms) / static_cast<double>(r.nodes);
    if (json) {
      const nlohmann::ordered_json line = {{"graph", r.shape},       {"nodes", r.nodes},
                                           {"trace_ms", r.trace_ms}, {"passes_ms", r.passes_ms},
                                           {"us_a_node", us_a_node}, {"first_ms", r.first_ms}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-12s %8lld %12.1f %12.1f %12.1f %14.1f\n", r.shape.c_str(), static_cast<long long>(r.nodes),
                  r.trace_ms, r.passes_ms, us_a_node, r.first_ms);
    }
  }
}

void print(const std::vector<bench::CompileRow>& rows, bool json) {
  if (!json)
    std::printf("%-26s %-18s %-9s %12s %12s %8s %8s %8s\n", "what", "shape", "mode", "min_us", "median_us", "gbps",
                "gflops", "kernels");
  for (const bench::CompileRow& r : rows) {
    if (json) {
      const nlohmann::ordered_json line = {{"what", r.what},
                                           {"shape", r.shape},
                                           {"mode", r.mode},
                                           {"min_us", r.time.min_us},
                                           {"median_us", r.time.median_us},
                                           {"gbps", r.gbps},
                                           {"gflops", r.gflops},
                                           {"kernels", r.kernels}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-26s %-18s %-9s %12.3f %12.3f %8.1f %8.1f %8lld\n", r.what.c_str(), r.shape.c_str(), r.mode.c_str(),
                  r.time.min_us, r.time.median_us, r.gbps, r.gflops, static_cast<long long>(r.kernels));
    }
  }
}

void print(const bench::StepRow& r, bool json) {
  const nlohmann::ordered_json line = {{"model", r.model},
                                       {"tokens", r.tokens},
                                       {"eager_ms", r.eager_ms},
                                       {"compiled_ms", r.compiled_ms},
                                       {"trace_ms", r.trace_ms},
                                       {"compile_ms", r.compile_ms},
                                       {"kernels_compiled", r.kernels_compiled},
                                       {"kernels_read", r.kernels_read},
                                       {"ops", r.ops},
                                       {"kernels", r.kernels},
                                       {"launches", r.launches},
                                       {"fused_ops", r.fused_ops},
                                       {"calls", r.calls},
                                       {"read_mbytes", r.read_mbytes},
                                       {"kept_mbytes", r.kept_mbytes},
                                       {"recomputed", r.recomputed},
                                       {"kernel_mbytes", r.kernel_mbytes},
                                       {"arena_mbytes", r.arena_mbytes},
                                       {"eager_peak_mbytes", r.eager_peak_mbytes},
                                       {"compiled_peak_mbytes", r.compiled_peak_mbytes},
                                       {"same_bits", r.same_bits}};
  if (json) {
    std::printf("%s\n", line.dump().c_str());
    return;
  }
  for (const auto& [key, value] : line.items()) std::printf("%-22s %s\n", key.c_str(), value.dump().c_str());
}

}  // namespace

void add_bench_compile(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App* sub = bench.add_subcommand(
      "compile", "Functions run op by op and compiled; with --model, one shard's forward and backward");
  sub->add_option("--threads", flags->threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--model", flags->model, "A model flavor, e.g. quickstart or debugmodel");
  sub->add_flag("--products", flags->products,
                "Matrix products with what follows them instead: eager, compiled apart, compiled as one");
  sub->add_flag("--block", flags->block,
                "A transformer block, forward and backward, instead: eager, compiled, and its products alone");
  sub->add_option(
         "--nodes", flags->nodes,
         "What compiling functions of so many ops costs besides making kernels, for five kinds of graphs, instead")
      ->check(CLI::Range(1, 100'000));
  sub->add_flag("--gate", flags->gate,
                "Some 90 programs op by op and compiled instead: exit status 1 where one takes more time or memory "
                "compiled");
  sub->add_option("--only", flags->only, "With --gate: programs whose name contains this");
  sub->add_option("--limit", flags->limit, "With --gate: the largest ratio of times")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--rows", flags->rows, "Sequences of the shard")->check(CLI::Range(1, 4096))->capture_default_str();
  sub->add_option("--sequence-length", flags->sequence_length, "Tokens of a sequence")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  sub->add_option("--budget", flags->budget, "With --model: activation memory budget, see docs/compiler.md")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_flag("--json", flags->json,
                "One object per line: what, shape, mode, min_us, median_us, gbps, gflops, kernels (--model: the keys "
                "it prints without; --nodes: graph, nodes, trace_ms, passes_ms, us_a_node, first_ms; --gate: program, "
                "eager_us, compiled_us, ratio, eager_peak_bytes, compiled_peak_bytes, kernels)");
  sub->callback([flags, &action] {
    action = [flags] {
      if (flags->gate)
        return print(bench::run_gate_bench(flags->threads, flags->only, flags->limit), flags->limit, flags->json) ? 0
                                                                                                                  : 1;
      if (!flags->nodes.empty()) {
        print(bench::run_graph_bench(flags->nodes), flags->json);
        return 0;
      }
      if (flags->model.empty()) {
        const auto run = flags->block      ? bench::run_block_bench
                         : flags->products ? bench::run_product_bench
                                           : bench::run_compile_bench;
        print(run(flags->threads), flags->json);
        return 0;
      }
      const bench::StepRow row =
          bench::run_step_bench(flags->model, flags->rows, flags->sequence_length, flags->threads, flags->budget);
      print(row, flags->json);
      return row.same_bits ? 0 : 1;
    };
  });
}

}  // namespace tutti::cli

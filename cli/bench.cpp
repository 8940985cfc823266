#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/gemm_bench.h"
#include "bench/ops_bench.h"
#include "bench/trace_bench.h"
#include "cli/command.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::cli {
namespace {

void print(const std::vector<bench::OpResult>& results, bool json) {
  if (!json)
    std::printf("%-28s %-14s %-5s %7s %-8s %12s %12s %9s %9s\n", "op", "shape", "dtype", "threads", "mode", "min_us",
                "median_us", "gbps", "gflops");
  for (const bench::OpResult& r : results) {
    if (json) {
      const nlohmann::ordered_json line = {{"op", r.op},
                                           {"shape", r.shape},
                                           {"dtype", r.dtype},
                                           {"threads", r.threads},
                                           {"mode", r.mode},
                                           {"min_us", r.time.min_us},
                                           {"median_us", r.time.median_us},
                                           {"gbps", r.gbps},
                                           {"gflops", r.gflops}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-28s %-14s %-5s %7d %-8s %12.3f %12.3f %9.1f %9.1f\n", r.op.c_str(), r.shape.c_str(),
                  r.dtype.c_str(), r.threads, r.mode.c_str(), r.time.min_us, r.time.median_us, r.gbps, r.gflops);
    }
  }
}

struct Flags {
  int threads = 1;
  bool json = false;
  std::string only;
  bool cpu_time = false;
  int64_t m = 1024, n = 1024, k = 1024;
  std::string dtype = "f32", mode = "strict";
  bool a_transposed = false, b_transposed = false, b_packed = false, is_cold = false;
};

void print_gemm(const bench::GemmTiming& t, const Flags& flags) {
  if (!flags.json) {
    std::printf("%s\n", bench::to_line(t).c_str());
    return;
  }
  const nlohmann::ordered_json line = {
      {"op", "gemm"},
      {"shape", fmt::format("{}x{}x{}{}", flags.m, flags.n, flags.k, bench::layout_text(t.problem))},
      {"dtype", flags.dtype},
      {"threads", flags.threads},
      {"mode", flags.mode},
      {"min_us", t.min_us},
      {"median_us", t.median_us},
      {"gbps", t.gbytes_per_s},
      {"gflops", t.gflops},
      {"peak_gflops", t.peak_gflops},
      {"verified", t.verified},
      {"how", t.how}};
  std::printf("%s\n", line.dump().c_str());
}

int print_trace_costs(bool json) {
  if (!json) std::printf("%-22s %-18s %10s %10s\n", "what", "session", "min_ns", "median_ns");
  for (const bench::TraceCost& cost : bench::run_trace_bench()) {
    const double min_ns = cost.time.min_us * 1e3, median_ns = cost.time.median_us * 1e3;
    if (json) {
      const nlohmann::ordered_json line = {
          {"what", cost.what}, {"session", cost.session}, {"min_ns", min_ns}, {"median_ns", median_ns}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-22s %-18s %10.2f %10.2f\n", cost.what.c_str(), cost.session.c_str(), min_ns, median_ns);
    }
  }
  return 0;
}

}  // namespace

void add_bench_attention(CLI::App& bench, Action& action);                        // bench_attention.cpp
void add_bench_choice(CLI::App& bench, Action& action);                           // bench_choice.cpp
void add_bench_generate(CLI::App& bench, Action& action);                         // bench_generate.cpp
void add_bench_comm(CLI::App& bench, Action& action, int argc, char** argv);      // bench_comm.cpp
void add_bench_compile(CLI::App& bench, Action& action);                          // bench_compile.cpp
void add_bench_package(CLI::App& bench, Action& action);                          // bench_package.cpp
void add_bench_layouts(CLI::App& bench, Action& action);                          // bench_layouts.cpp
void add_bench_loss(CLI::App& bench, Action& action);                             // bench_loss.cpp
void add_bench_math(CLI::App& bench, Action& action);                             // bench_math.cpp
void add_bench_moe(CLI::App& bench, Action& action);                              // bench_moe.cpp
void add_bench_dtensor(CLI::App& bench, Action& action);                          // bench_dtensor.cpp
void add_bench_fsdp(CLI::App& bench, Action& action);                             // bench_fsdp.cpp
void add_bench_codes(CLI::App& bench, Action& action);                            // bench_codes.cpp
void add_bench_dlrm(CLI::App& bench, Action& action);                             // bench_dlrm.cpp
void add_bench_embedding(CLI::App& bench, Action& action);                        // bench_embedding.cpp
void add_bench_quantized(CLI::App& bench, Action& action);                        // bench_quantized.cpp
void add_bench_services(CLI::App& bench, Action& action, int argc, char** argv);  // bench_services.cpp
void add_bench_serve(CLI::App& bench, Action& action);                            // bench_serve.cpp
void add_bench_strict(CLI::App& bench, Action& action);                           // bench_strict.cpp
void add_bench_train(CLI::App& bench, Action& action);                            // bench_train.cpp

void add_bench(CLI::App& app, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand(
      "bench", "Measure this machine: minimum and median, compared with a baseline measured in the same run");
  verb->require_subcommand(1);
  const auto common = [flags](CLI::App* sub) {
    sub->add_option("--threads", flags->threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
    sub->add_flag("--json", flags->json,
                  "One object per line: op, shape, dtype, threads, mode, min_us, median_us, gbps, gflops (gemm: also "
                  "peak_gflops, verified, how)");
  };
  CLI::App* ops =
      verb->add_subcommand("ops", "Eager ops compared with a memory copy; milliseconds per compiled kernel");
  common(ops);
  ops->add_option("--only", flags->only, "Only ops whose name contains this");
  ops->add_flag("--cpu-time", flags->cpu_time,
                "Processor time of the thread, for a machine that does other things too; needs --threads 1");
  ops->callback([flags, &action] {
    action = [flags] {
      const auto results = bench::run_ops_bench(
          flags->threads, flags->only, flags->cpu_time ? bench::MeasuredTime::thread : bench::MeasuredTime::wall);
      TUTTI_CHECK(!results.empty(), "no op of this bench has '{}' in its name; leave --only out to see them all",
                  flags->only);
      print(results, flags->json);
      return 0;
    };
  });
  CLI::App* trace =
      verb->add_subcommand("trace", "What profiling costs: a span and a small op, without a session and with one");
  trace->add_flag("--json", flags->json, "One object per line: what, session, min_ns, median_ns");
  trace->callback([flags, &action] { action = [flags] { return print_trace_costs(flags->json); }; });
  CLI::App* gemm = verb->add_subcommand("gemm", "Matrix product compared with the peak of the machine");
  common(gemm);
  gemm->add_option("--m", flags->m, "Rows")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  gemm->add_option("--n", flags->n, "Columns")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  gemm->add_option("--k", flags->k, "Inner size")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  gemm->add_flag("--a-transposed", flags->a_transposed,
                 "A in memory as [k, m], as an operand of the gradient of a weight");
  gemm->add_flag("--b-transposed", flags->b_transposed, "B in memory as [n, k], as the weight of a linear layer");
  gemm->add_flag("--b-packed", flags->b_packed, "That weight, packed before: packed_linear()");
  gemm->add_flag("--cold", flags->is_cold,
                 "Other copies of A, B and C in each call, together larger than the caches, as in a training step");
  gemm->add_option("--dtype", flags->dtype, "f32, f64, bf16, f16, or i8 with i32 sums")->capture_default_str();
  gemm->add_option("--mode", flags->mode,
                   "Numerics: strict, or fast, where TUTTI_GEMM_CHOICE=measure may take a library")
      ->check(CLI::IsMember({"strict", "fast"}))
      ->capture_default_str();
  gemm->callback([flags, &action] {
    action = [flags] {
      RankContext::current().set_threads(flags->threads);
      const bench::GemmTiming t =
          bench::time_gemm({.m = flags->m,
                            .n = flags->n,
                            .k = flags->k,
                            .dtype = dtype_from_name(flags->dtype),
                            .b_transposed = flags->b_transposed || flags->b_packed,
                            .b_packed = flags->b_packed,
                            .mode = flags->mode == "fast" ? NumericsMode::fast : NumericsMode::strict,
                            .a_transposed = flags->a_transposed,
                            .is_cold = flags->is_cold});
      print_gemm(t, *flags);
      return t.verified ? 0 : 1;
    };
  });
  add_bench_attention(*verb, action);
  add_bench_choice(*verb, action);
  add_bench_generate(*verb, action);
  add_bench_comm(*verb, action, argc, argv);
  add_bench_compile(*verb, action);
  add_bench_package(*verb, action);
  add_bench_layouts(*verb, action);
  add_bench_loss(*verb, action);
  add_bench_math(*verb, action);
  add_bench_moe(*verb, action);
  add_bench_dtensor(*verb, action);
  add_bench_fsdp(*verb, action);
  add_bench_codes(*verb, action);
  add_bench_dlrm(*verb, action);
  add_bench_embedding(*verb, action);
  add_bench_quantized(*verb, action);
  add_bench_services(*verb, action, argc, argv);
  add_bench_serve(*verb, action);
  add_bench_strict(*verb, action);
  add_bench_train(*verb, action);
}

}  // namespace tutti::cli

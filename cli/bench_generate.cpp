// `tutti bench generate`: tokens per second of reading prompts and of writing text.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/generate_bench.h"
#include "cli/command.h"
#include "cli/sampling_flags.h"

namespace tutti::cli {

void add_bench_generate(CLI::App& bench, Action& action);

namespace {

std::string computed_in(const bench::GenerateProblem& problem) {
  if (problem.quantize) return std::string(name_of(*problem.quantize));
  return problem.keep_blocks ? "kept" : std::string(name_of(problem.dtype));
}

void print(const bench::GenerateProblem& problem, const bench::GenerateResult& result, bool json) {
  if (!json)
    std::printf("%-18s %7s %-16s %12s %10s %9s %8s\n", "test", "threads", "dtype", "tokens/s", "stddev", "gbps",
                "of one");
  for (const bench::GenerateRow& row : result.rows) {
    if (!json) {
      std::printf("%-18s %7d %-16s %12.2f %10.2f %9.2f", row.test.c_str(), problem.threads,
                  computed_in(problem).c_str(), row.avg_ts, row.stddev_ts, row.gbytes_per_s);
      if (row.over_one > 0) std::printf(" %7.2fx", row.over_one);
      std::printf("\n");
      continue;
    }
    nlohmann::ordered_json line = {{"test", row.test},
                                   {"model", problem.model},
                                   {"model_n_params", result.parameters},
                                   {"dtype", name_of(problem.dtype)},
                                   {"compile", problem.compile},
                                   {"quantized", problem.keep_blocks},
                                   {"quantize", problem.quantize ? name_of(*problem.quantize) : ""},
                                   {"kv_cache_dtype", problem.cache_dtype ? name_of(*problem.cache_dtype) : "auto"},
                                   {"cache_bytes_per_token", result.cache_bytes_per_token},
                                   {"n_threads", problem.threads},
                                   {"n_prompt", row.prompt},
                                   {"n_gen", row.generated},
                                   {"n_depth", row.depth},
                                   {"n_requests", row.requests},
                                   {"avg_ts", row.avg_ts},
                                   {"stddev_ts", row.stddev_ts},
                                   {"gbps", row.gbytes_per_s}};
    if (row.over_one > 0) line["over_one"] = row.over_one;
    for (const double s : row.samples_s) line["samples_ns"].push_back(static_cast<int64_t>(s * 1e9));
    std::printf("%s\n", line.dump().c_str());
  }
  if (!json)
    std::printf("%.0f M parameters, %.0f MB of weights, %.0f MB of cache, %lld bytes a token, %.0f MB resident\n",
                static_cast<double>(result.parameters) * 1e-6, result.weights_mbytes, result.cache_mbytes,
                static_cast<long long>(result.cache_bytes_per_token), result.rss_mbytes);
}

}  // namespace

void add_bench_generate(CLI::App& bench, Action& action) {
  struct Flags {
    bench::GenerateProblem problem;
    std::string dtype = "f32";
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* generate = bench.add_subcommand(
      "generate", "Tokens per second of reading prompts and of writing text, as llama-bench's rows");
  bench::GenerateProblem& p = flags->problem;
  generate->add_option("model", p.model, "A folder with config.json, a GGUF file, or family/flavor with random weights")
      ->capture_default_str();
  const auto list = [&](const char* name, std::vector<int64_t>& values, const char* what, int64_t least) {
    generate->add_option(name, values, what)
        ->delimiter(',')
        ->check(CLI::Range(least, int64_t{1} << 20))
        ->capture_default_str();
  };
  list("-p,--n-prompt", p.prompts, "Tokens of a prompt", 1);
  list("-n,--n-gen", p.generated, "Tokens to write", 1);
  list("-d,--n-depth", p.depths, "Tokens before those that are written", 0);
  list("--requests", p.requests, "Requests at once; 1,16 also tells how much more 16 write than one", 1);
  generate->add_option("-t,--threads", p.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  generate->add_option("-r,--repetitions", p.repeats, "Repeats")->check(CLI::Range(1, 1000))->capture_default_str();
  generate->add_option("--dtype", flags->dtype, "Of weights and computation")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  generate->add_flag("--compile", p.compile, "Compile the model's forwards");
  generate->add_flag("--quantized", p.keep_blocks, "Compute with the quantized weights of a GGUF file as they are");
  generate
      ->add_option_function<std::string>(
          "--quantize", [&p](const std::string& kind) { p.quantize = nn::quantization_from_name(kind); },
          "Quantize the linear layers: int8, fp8, int8_weight_only or int4_weight_only")
      ->check(CLI::IsMember({"int8", "fp8", "int8_weight_only", "int4_weight_only"}));
  add_cache_dtype_flag(*generate, p.cache_dtype);
  generate->add_flag("--json", flags->json, "One object per line, with llama-bench's keys");
  generate->callback([flags, &action] {
    action = [flags] {
      flags->problem.dtype = flags->dtype == "bf16" ? DType::bf16 : DType::f32;
      print(flags->problem, bench::run_generate_bench(flags->problem), flags->json);
      return 0;
    };
  });
}

}  // namespace tutti::cli

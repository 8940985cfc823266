// `tutti bench serve`: how long clients of the HTTP server wait.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "bench/process_memory.h"
#include "bench/serve_bench.h"
#include "cli/command.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/model_server.h"

namespace tutti::cli {

void add_bench_serve(CLI::App& bench, Action& action);

namespace {

struct ServeBenchFlags {
  std::string target;
  bench::ServeProblem problem;
  train::ModelServerOptions server;
  int threads = 1;
  bool json = false;
};

void print_head(bool json) {
  if (!json)
    std::printf("%7s %8s %6s %8s %9s | %9s %9s | %9s %9s | %9s %9s\n", "clients", "requests", "errors", "req/s",
                "tokens/s", "ttft_p50", "ttft_p99", "itl_p50", "itl_p99", "all_p50", "all_p99");
}

void print_waits(const bench::ServeRow& row, bool json) {
  if (!json) {
    std::printf("%7d %8lld %6lld %8.2f %9.1f | %9.1f %9.1f | %9.2f %9.2f | %9.1f %9.1f\n", row.clients,
                static_cast<long long>(row.requests), static_cast<long long>(row.errors), row.requests_per_s,
                row.tokens_per_s, row.first_token.p50_ms, row.first_token.p99_ms, row.between_tokens.p50_ms,
                row.between_tokens.p99_ms, row.whole.p50_ms, row.whole.p99_ms);
  } else {
    JsonWriter line;
    line.object().member("clients", int64_t{row.clients}).member("requests", row.requests).member("errors", row.errors);
    line.member("prompt_tokens", row.prompt_tokens).member("generated_tokens", row.generated_tokens);
    line.member("requests_per_s", row.requests_per_s).member("tokens_per_s", row.tokens_per_s);
    const auto waits = [&](const char* p50, const char* p99, const bench::Waits& waits) {
      line.member(p50, waits.p50_ms).member(p99, waits.p99_ms);
    };
    waits("ttft_p50_ms", "ttft_p99_ms", row.first_token);
    waits("itl_p50_ms", "itl_p99_ms", row.between_tokens);
    waits("request_p50_ms", "request_p99_ms", row.whole);
    line.end();
    std::printf("%s\n", line.take().c_str());
  }
  if (!row.error.empty()) std::fprintf(stderr, "%d clients: %s\n", row.clients, row.error.c_str());
  std::fflush(stdout);
}

int run_bench_serve(ServeBenchFlags flags) {
  RankContext rank({.threads = flags.threads});
  const RankContext::Scope scope(rank);
  std::unique_ptr<train::ModelServer> own;
  flags.problem.url = flags.target;
  if (flags.target.find("://") == std::string::npos) {
    own = std::make_unique<train::ModelServer>(flags.target, flags.server);
    flags.problem.url = own->server().url();
  }
  print_head(flags.json);
  int64_t errors = 0;
  bench::run_serve_bench(flags.problem, [&](const bench::ServeRow& row) {
    print_waits(row, flags.json);
    errors += row.errors;
  });
  if (own != nullptr && !flags.json)
    std::printf("times in ms; %d threads, %.0f MB resident\n", flags.threads, bench::process_memory().now_mbytes);
  return errors == 0 ? 0 : 1;
}

}  // namespace

void add_bench_serve(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<ServeBenchFlags>();
  CLI::App* serve =
      bench.add_subcommand("serve", "Requests per second of an HTTP server, and how long its clients wait for tokens");
  bench::ServeProblem& p = flags->problem;
  serve->add_option("target", flags->target, "http://HOST:PORT of a running server, or a model to serve meanwhile")
      ->required();
  serve->add_option("-c,--clients", p.clients, "Clients at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  const auto number = [&](const char* name, int64_t& value, const char* what) {
    serve->add_option(name, value, what)->check(CLI::Range(int64_t{1}, int64_t{1} << 20))->capture_default_str();
  };
  number("--requests", p.requests, "Of each client, one after another");
  number("--prompt-words", p.prompt_words, "Of each prompt");
  number("--max-tokens", p.max_tokens, "Of each text");
  serve->add_option("--api-key", p.api_key, "Of the running server")->envname("TUTTI_API_KEY");
  number("--max-requests", flags->server.max_requests, "That a served model answers at once");
  number("--batch-tokens", flags->server.batch_tokens, "Of a step of a served model");
  serve
      ->add_option("--interleaved-tokens", flags->server.interleaved_tokens,
                   "Tokens of prompts in a step in which others write; 0: all that fit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  number("--cache-mbytes", flags->server.cache_mbytes, "Memory of a served model for keys and values");
  serve->add_option("-t,--threads", flags->threads, "Of a served model")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  serve->add_flag("--json", flags->json, "One object per line; times in milliseconds");
  serve->callback([flags, &action] { action = [flags] { return run_bench_serve(*flags); }; });
}

}  // namespace tutti::cli

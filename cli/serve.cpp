// `tutti serve`: a model behind the HTTP interface that clients of OpenAI's know.
#include <pthread.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/model_ranks.h"
#include "cli/sampling_flags.h"
#include "tutti/core/error.h"
#include "tutti/job/printable.h"
#include "tutti/train/model_server.h"

namespace tutti::cli {
namespace {

struct ServeFlags {
  std::string model;
  train::ModelServerOptions options;
  ModelRanks ranks;
};

// Signals that end the server, blocked before there are threads, so that the thread that waits gets them.
sigset_t block_ends() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a client that has gone is an error of its write
  return signals;
}

int run_serve(ServeFlags flags) {
  std::optional<StartedRank> rank;
  if (const auto status = start_ranks(flags.ranks, flags.model, flags.options.model, rank)) return *status;
  const sigset_t signals = block_ends();
  if (rank && rank->group().rank() > 0) {  // also after a signal, for as long as requests run
    train::follow_server(flags.model, flags.options);
    return 0;
  }
  flags.options.on_failure = [] { kill(getpid(), SIGTERM); };
  train::ModelServer model(flags.model, flags.options);
  std::printf("%s at %s\n", comm::printable_lines(model.name()).c_str(), model.server().url().c_str());
  if (std::fflush(stdout) != 0) return 1;  // status_after_output() says why
  int number = 0;
  sigwait(&signals, &number);
  if (model.failure().empty())
    std::fprintf(stderr, "ending: requests that run have %lld seconds\n",
                 static_cast<long long>(flags.options.http.drain.count()));
  model.stop();
  TUTTI_CHECK_ENV(model.failure().empty(), "serve: {}", model.failure());
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<ServeFlags>();
  flags->ranks.command_line.assign(argv, argv + argc);
  CLI::App* verb = app.add_subcommand("serve", "Answer HTTP requests of OpenAI's clients, and a page to chat at /");
  verb->add_option("model", flags->model,
                   "A run folder, a folder with config.json, also of an encoder, a GGUF file, or a packaged model")
      ->required();
  verb->add_option("--host", flags->options.http.host, "The address to listen at; other than loopback needs --api-key")
      ->capture_default_str();
  flags->options.http.port = 8000;
  verb->add_option("--port", flags->options.http.port, "0: a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  verb->add_option("--api-key", flags->options.http.api_key, "Requests need it as Authorization: Bearer KEY")
      ->envname("TUTTI_API_KEY");
  verb->add_option("--max-requests", flags->options.max_requests, "That are answered at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--batch-tokens", flags->options.batch_tokens, "Tokens of a step at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--interleaved-tokens", flags->options.interleaved_tokens,
                   "Tokens of prompts in a step in which others write, who wait for it; 0: all that fit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  verb->add_option("--queue", flags->options.queue, "Requests that wait at most; more are answered by 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--cache-mbytes", flags->options.cache_mbytes, "Memory for keys and values")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  verb->add_option("--connections", flags->options.http.connections, "That are open at most; more are answered by 503")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  add_sampling_flags(*verb, flags->options.sampling);
  add_model_flags(*verb, flags->options.model);
  add_rank_flags(*verb, flags->ranks);
  verb->callback([flags, &action] { action = [flags] { return run_serve(*flags); }; });
}

}  // namespace tutti::cli

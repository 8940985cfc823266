// `tutti serve`: a model behind the HTTP interface that clients of OpenAI's know.
#include <pthread.h>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/sampling_flags.h"
#include "tutti/core/error.h"
#include "tutti/generate/serve/engine_backend.h"
#include "tutti/generate/serve/http_server.h"
#include "tutti/job/printable.h"
#include "tutti/train/text_model.h"

namespace tutti::cli {
namespace {

struct ServeFlags {
  std::string model;
  train::SamplingSettings sampling;
  train::TextModelOptions options;
  generate::serve::HttpOptions http;
  int64_t max_requests = 16, batch_tokens = 512, queue = 256, cache_mbytes = 1024;
};

int run_serve(ServeFlags flags) {
  // Blocked before there are threads, so that this one gets them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a client that has gone is an error of its write

  train::TextModel text = train::open_text_model(flags.model, flags.options);
  generate::EngineOptions options = text.engine_options();
  options.max_requests = flags.max_requests;
  options.batch_tokens = std::max(flags.batch_tokens, flags.max_requests);
  options.cache_bytes = flags.cache_mbytes << 20;
  generate::Engine engine(*text.model, *text.tokenizer, options);
  generate::serve::EngineBackend backend(engine, flags.queue);
  generate::serve::ServedModel served{.name = text.name,
                                      .tokenizer = text.tokenizer.get(),
                                      .chat = std::move(text.chat),
                                      .ends = text.ends,
                                      .suppressed = text.suppressed,
                                      .stops = text.stops,
                                      .defaults = flags.sampling.over(text.sampling),
                                      .context = engine.context()};
  generate::serve::HttpServer server(backend, std::move(served), flags.http);
  std::printf("%s at %s\n", comm::printable_lines(text.name).c_str(), server.url().c_str());
  if (std::fflush(stdout) != 0) return 1;  // status_after_output() says why
  int number = 0;
  sigwait(&signals, &number);
  std::fprintf(stderr, "ending: requests that run have %lld seconds\n",
               static_cast<long long>(flags.http.drain.count()));
  server.stop();
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* verb = app.add_subcommand("serve", "Answer HTTP requests of OpenAI's clients, and a page to chat at /");
  verb->add_option("model", flags->model, "A run folder, a folder with config.json, or a GGUF file")->required();
  verb->add_option("--host", flags->http.host, "The address to listen at; other than loopback needs --api-key")
      ->capture_default_str();
  flags->http.port = 8000;
  verb->add_option("--port", flags->http.port, "0: a free one")->check(CLI::Range(0, 65535))->capture_default_str();
  verb->add_option("--api-key", flags->http.api_key, "Requests need it as Authorization: Bearer KEY")
      ->envname("TUTTI_API_KEY");
  verb->add_option("--max-requests", flags->max_requests, "That are answered at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--batch-tokens", flags->batch_tokens, "Tokens of a step at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--queue", flags->queue, "Requests that wait at most; more are answered by 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--cache-mbytes", flags->cache_mbytes, "Memory for keys and values")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  verb->add_option("--connections", flags->http.connections, "That are open at most; more are answered by 503")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  add_sampling_flags(*verb, flags->sampling);
  add_model_flags(*verb, flags->options);
  verb->callback([flags, &action] { action = [flags] { return run_serve(*flags); }; });
}

}  // namespace tutti::cli

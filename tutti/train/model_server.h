// A model behind the HTTP interface: one that writes texts, or an encoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tutti/generate/serve/http_server.h"
#include "tutti/train/text_settings.h"

namespace tutti::train {

struct ModelServerOptions {
  TextModelOptions model = {};
  SamplingSettings sampling = {};  // for what requests do not say
  generate::serve::HttpOptions http = {};
  int64_t max_requests = 16;         // that are answered at once
  int64_t batch_tokens = 512;        // of a step; at least max_requests are taken
  int64_t interleaved_tokens = 128;  // of prompts in a step in which others write; 0: all that fit
  int64_t queue = 256;               // requests that wait; more are answered by 503
  int64_t cache_mbytes = 1024;
  std::function<void()> on_failure = {};  // called once, by another thread, when no more text can be written
};

// Where ranks divide the model (TextModelOptions::group), the first one serves, and the others follow_server().
class ModelServer {
 public:
  // Opens the model and answers requests, by threads of its own. Errors as open_text_model(), SentenceModel, Engine and
  // HttpServer; UsageError for an encoder with a context or dtype, which its files say, a dtype of a cache,
  // compiled, quantized, or on several ranks.
  ModelServer(const std::filesystem::path& model, const ModelServerOptions& options);
  ~ModelServer();
  ModelServer(const ModelServer&) = delete;
  ModelServer& operator=(const ModelServer&) = delete;

  const std::string& name() const { return name_; }
  generate::serve::HttpServer& server() { return *server_; }
  // Stops the HTTP server, and then the engine, by which ranks that follow_server() return.
  void stop();
  // Why no more text can be written, as when one of several ranks has died, also while it stopped; "" while it can.
  std::string failure() const { return failure_(); }

 private:
  std::string name_;
  std::function<std::string()> failure_;
  std::function<void()> stop_backend_;
  std::shared_ptr<void> served_;  // the model and its backend
  std::unique_ptr<generate::serve::HttpServer> server_;
};

// Runs the steps of the server of the first rank, with the same arguments, until that is destroyed. Throws when its
// rank has died.
void follow_server(const std::filesystem::path& model, const ModelServerOptions& options);

}  // namespace tutti::train

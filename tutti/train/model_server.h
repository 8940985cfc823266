// A model behind the HTTP interface: one that writes texts, or an encoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tutti/generate/serve/http_server.h"
#include "tutti/train/text_settings.h"

namespace tutti::train {

struct ModelServerOptions {
  TextModelOptions model = {};
  SamplingSettings sampling = {};  // for what requests do not say
  generate::serve::HttpOptions http = {};
  int64_t max_requests = 16;   // that are answered at once
  int64_t batch_tokens = 512;  // of a step; at least max_requests are taken
  int64_t queue = 256;         // requests that wait; more are answered by 503
  int64_t cache_mbytes = 1024;
};

class ModelServer {
 public:
  // Opens the model and answers requests, by threads of its own. Errors as open_text_model(), SentenceModel, Engine and
  // HttpServer; UsageError for an encoder with a context or dtype, which its files say.
  ModelServer(const std::filesystem::path& model, const ModelServerOptions& options);
  ~ModelServer();
  ModelServer(const ModelServer&) = delete;
  ModelServer& operator=(const ModelServer&) = delete;

  const std::string& name() const { return name_; }
  generate::serve::HttpServer& server() { return *server_; }

 private:
  std::string name_;
  std::shared_ptr<void> served_;  // the model and its backend
  std::unique_ptr<generate::serve::HttpServer> server_;
};

}  // namespace tutti::train

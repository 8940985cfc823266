// The HTTP interface without HTTP: paths and bodies to answers.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tutti/generate/serve/api_request.h"
#include "tutti/generate/serve/backend.h"
#include "tutti/generate/serve/exchange.h"
#include "tutti/io/chat_template/chat_encoding.h"

namespace tutti::generate::serve {

struct ApiOptions {
  ApiLimits limits = {};
  // For how long a request may run.
  std::chrono::seconds deadline{600};
  // How many tokens a request without max_tokens makes; 0: as many as fit.
  int64_t default_max_tokens = 0;
};

struct Answer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  // A stream in the place of `body`.
  std::shared_ptr<Exchange> stream = {};
};

// May be called by any thread.
class Api {
 public:
  // The backend must outlive it. `model.tokenizer` must, too.
  Api(Backend& backend, ServedModel model, const ApiOptions& options = {});

  // The answer to a request, which is an error_json for one that is wrong. Waits until texts have been generated,
  // unless they are streamed, or until `client_is_there` says no.
  Answer handle(
      std::string_view method, std::string_view path, std::string_view body,
      const std::function<bool()>& client_is_there = [] { return true; });

  // Ends the requests that run, with 503.
  void abort() { *is_aborted_ = true; }

 private:
  using ClientCheck = std::function<bool()>;

  Answer dispatch(std::string_view method, std::string_view path, std::string_view body,
                  const ClientCheck& client_is_there);
  Answer complete(std::string_view body, const ClientCheck& client_is_there);
  Answer chat(std::string_view body, const ClientCheck& client_is_there);
  Answer embed(std::string_view body, const ClientCheck& client_is_there);
  Answer tokenize(std::string_view body);
  Answer metrics() const;
  Answer run(ExchangePlan plan, const ClientCheck& client_is_there);
  ExchangePlan plan_for(const TextSettings& settings, bool is_chat);
  std::vector<int32_t> ids_of(const Prompt& prompt) const;
  void check_tokens(std::string_view field, std::span<const int32_t> ids) const;
  void check_model(const std::string& name) const;

  Backend& backend_;
  const ServedModel model_;
  const ChatEncoder encoder_;
  const ApiOptions options_;
  const int64_t created_;
  std::atomic<uint64_t> serial_ = 0;
  std::atomic<int64_t> requests_ = 0, errors_ = 0;
  const std::shared_ptr<std::atomic<bool>> is_aborted_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace tutti::generate::serve

#include "tutti/generate/serve/api.h"

#include <ctime>

#include "tutti/generate/serve/api_error.h"
#include "tutti/generate/serve/chat_page.h"
#include "tutti/io/chat_template/chat_encoding.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::generate::serve {
namespace {

struct Route {
  std::string_view method;
  std::string_view path;
};
constexpr Route kRoutes[] = {{"GET", "/"},
                             {"GET", "/health"},
                             {"GET", "/v1/models"},
                             {"GET", "/metrics"},
                             {"POST", "/v1/completions"},
                             {"POST", "/v1/chat/completions"},
                             {"POST", "/v1/embeddings"},
                             {"POST", "/tokenize"},
                             {"POST", "/detokenize"}};

[[noreturn]] void refuse_route(std::string_view method, std::string_view path) {
  std::string known;
  for (const Route& route : kRoutes) {
    if (route.path == path)
      throw ApiError(405, "invalid_request_error", "method_not_allowed",
                     fmt::format("{} takes {}, not {}", path, route.method, method));
    known += fmt::format("{}{} {}", known.empty() ? "" : ", ", route.method, route.path);
  }
  throw ApiError(404, "invalid_request_error", "not_found",
                 fmt::format("there is no {} here; there are {}", path, known));
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

Api::Api(Backend& backend, ServedModel model, const ApiOptions& options)
    : backend_(backend),
      model_(std::move(model)),
      encoder_(*model_.tokenizer),
      options_(options),
      created_(std::time(nullptr)) {
  TUTTI_CHECK(model_.context > 1, "the context of the model that is served is {}; expected at least 2 tokens",
              model_.context);
}

Answer Api::handle(std::string_view method, std::string_view path, std::string_view body,
                   const ClientCheck& client_is_there) {
  ++requests_;
  const auto failed = [&](const ApiError& error) -> Answer {
    ++errors_;
    return {.status = error.status(), .body = error_json(error)};
  };
  try {
    return dispatch(method, path, body, client_is_there);
  } catch (const ApiError& error) {
    return failed(error);
  } catch (const UsageError& error) {
    return failed(bad_request(error.what()));
  } catch (const std::exception& error) {
    return failed(ApiError(500, "server_error", "internal_error", error.what()));
  }
}

Answer Api::dispatch(std::string_view method, std::string_view path, std::string_view body,
                     const ClientCheck& client_is_there) {
  const auto is = [&](std::string_view its_method, std::string_view its_path) {
    return method == its_method && path == its_path;
  };
  if (is("GET", "/")) return {.content_type = "text/html; charset=utf-8", .body = std::string(kChatPage)};
  if (is("GET", "/health")) return {.body = R"({"status":"ok"})"};
  if (is("GET", "/v1/models")) return {.body = models_json(model_.name, created_, model_.context)};
  if (is("GET", "/metrics")) return metrics();
  if (is("POST", "/v1/completions")) return complete(body, client_is_there);
  if (is("POST", "/v1/chat/completions")) return chat(body, client_is_there);
  if (is("POST", "/v1/embeddings")) return embed(body, client_is_there);
  if (is("POST", "/tokenize")) return tokenize(body);
  if (is("POST", "/detokenize")) {
    const std::vector<int32_t> ids = parse_detokenize(body);
    check_tokens("tokens", ids);
    return {.body = detokenized_json(model_.tokenizer->decode(ids))};
  }
  refuse_route(method, path);
}

void Api::check_model(const std::string& name) const {
  if (!name.empty() && name != model_.name)
    throw ApiError(404, "invalid_request_error", "model_not_found",
                   fmt::format("there is no model '{}' here; '{}' is served", name, model_.name));
}

void Api::check_tokens(std::string_view field, std::span<const int32_t> ids) const {
  for (const int32_t id : ids)
    if (!model_.tokenizer->has_token(id)) throw bad_request(fmt::format("{}: {} is not a token", field, id));
}

std::vector<int32_t> Api::ids_of(const Prompt& prompt) const {
  if (const auto* text = std::get_if<std::string>(&prompt))
    return model_.tokenizer->encode(*text, {.add_special_tokens = true});
  const auto& ids = std::get<std::vector<int32_t>>(prompt);
  check_tokens("prompt", ids);
  return ids;
}

ExchangePlan Api::plan_for(const TextSettings& settings, bool is_chat) {
  check_model(settings.model);
  if (!model_.writes_texts)
    throw bad_request(fmt::format("'{}' is an encoder, which writes no texts; ask it for /v1/embeddings, or serve a "
                                  "model that writes, such as SmolLM2",
                                  model_.name),
                      "not_supported");
  const uint64_t serial = ++serial_;
  ExchangePlan plan{.head = {.id = fmt::format("{}-{}", is_chat ? "chatcmpl" : "cmpl", serial),
                             .created = std::time(nullptr),
                             .model = model_.name,
                             .is_chat = is_chat},
                    .settings = settings};
  if (!settings.max_tokens && options_.default_max_tokens > 0) plan.settings.max_tokens = options_.default_max_tokens;
  // Requests draw differently, but a server that is asked the same again from its start says the same.
  plan.seed = model_.defaults.seed + (serial << 20);
  plan.is_aborted = is_aborted_;
  plan.deadline = std::chrono::steady_clock::now() + options_.deadline;
  return plan;
}

Answer Api::run(ExchangePlan plan, const ClientCheck& client_is_there) {
  const bool streams = plan.settings.stream;
  const auto exchange = std::make_shared<Exchange>(backend_, model_, std::move(plan));
  if (streams) return {.content_type = "text/event-stream", .stream = exchange};
  return {.body = exchange->answer(client_is_there)};
}

Answer Api::complete(std::string_view body, const ClientCheck& client_is_there) {
  const CompletionRequest request = parse_completion(body, options_.limits);
  ExchangePlan plan = plan_for(request.settings, false);
  if (request.echo && request.settings.log_probabilities) throw bad_request("echo with logprobs is not supported");
  for (const Prompt& prompt : request.prompts) {
    plan.prompts.push_back(ids_of(prompt));
    if (request.echo) plan.echoes.push_back(valid_utf8(model_.tokenizer->decode(plan.prompts.back(), true)));
  }
  return run(std::move(plan), client_is_there);
}

Answer Api::chat(std::string_view body, const ClientCheck& client_is_there) {
  const ChatRequest request = parse_chat(body, options_.limits);
  ExchangePlan plan = plan_for(request.settings, true);
  const ChatInput input{.messages = request.messages,
                        .tools = request.tools,
                        .documents = request.documents,
                        .add_generation_prompt = request.add_generation_prompt,
                        .special_tokens = model_.chat.special_tokens,
                        .extra = request.extra,
                        .now = local_time()};
  plan.prompts.push_back(encoder_.encode(model_.chat.choose(request.tools.has_value()).render(input)));
  return run(std::move(plan), client_is_there);
}

Answer Api::embed(std::string_view body, const ClientCheck& client_is_there) {
  const auto deadline = std::chrono::steady_clock::now() + options_.deadline;
  const EmbeddingRequest request = parse_embedding(body, options_.limits);
  check_model(request.model);
  for (size_t i = 0; i < request.inputs.size(); ++i)
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.inputs[i]))
      check_tokens(fmt::format("input[{}]", i), *ids);
  const Embeddings embeddings = backend_.embed(request.inputs, [&] {
    if (*is_aborted_) throw overloaded("the server stops");
    if (std::chrono::steady_clock::now() >= deadline)
      throw ApiError(504, "server_error", "timeout",
                     fmt::format("the {} texts were not embedded within {} s; send fewer at once",
                                 request.inputs.size(), options_.deadline.count()));
    if (!client_is_there()) throw client_left();
  });
  return {.body = embeddings_json(model_.name, embeddings.vectors, request.as_base64, embeddings.tokens)};
}

Answer Api::tokenize(std::string_view body) {
  const TokenizeRequest request = parse_tokenize(body);
  const std::vector<int32_t> ids =
      model_.tokenizer->encode(request.text, {.add_special_tokens = request.add_special_tokens, .parse_special = true});
  return {.body = tokens_json(ids, model_.context)};
}

Answer Api::metrics() const {
  std::vector<Metric> all = backend_.metrics();
  const auto number = [](int64_t count) { return static_cast<double>(count); };
  all.push_back(
      {"tutti_http_requests_total", "Requests that were answered or are being answered", number(requests_), true});
  all.push_back({"tutti_http_errors_total", "Requests that were answered by an error", number(errors_), true});
  return {.content_type = "text/plain; version=0.0.4", .body = metrics_text(all)};
}

}  // namespace tutti::generate::serve

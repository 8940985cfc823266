#include "tutti/generate/chat_session.h"

#include "tutti/core/error.h"
#include "tutti/generate/serve/text_stream.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::generate {

ChatSession::ChatSession(Engine& engine, const Tokenizer& tokenizer, const PublishedChat& chat, ChatOptions options)
    : engine_(engine), tokenizer_(tokenizer), chat_(chat), encoder_(tokenizer), options_(std::move(options)) {
  TUTTI_CHECK(chat.has_template(),
              "the model brings no chat template, so it does not say how turns of a conversation are written; continue "
              "texts with `tutti generate`");
}

std::vector<int32_t> ChatSession::prompt() const {
  JsonWriter json;
  json.array();
  const auto add = [&](const std::string& role, const std::string& text) {
    json.object().member("role", role).member("content", text).end();
  };
  if (!options_.system.empty()) add("system", options_.system);
  for (const auto& [role, text] : turns_) add(role, text);
  const JsonDocument messages(json.end().take(), {.name = "the conversation"});
  return encoder_.encode(chat_.choose(false).render({.messages = messages.top(),
                                                     .add_generation_prompt = true,
                                                     .special_tokens = chat_.special_tokens,
                                                     .now = options_.now}));
}

ChatAnswer ChatSession::say(const std::string& text, const std::function<void(std::string_view)>& told,
                            const std::function<bool()>& is_stopped) {
  turns_.emplace_back("user", text);
  ChatAnswer answer;
  RequestId id = 0;
  try {
    Request request = options_.request;
    request.prompt = prompt();
    request.sampling.seed += static_cast<uint64_t>(turns());
    answer.prompt_tokens = std::ssize(request.prompt);
    id = engine_.submit(std::move(request));
  } catch (const UsageError&) {
    turns_.pop_back();
    throw;
  }
  serve::TextStream stream(tokenizer_, options_.stops);
  const auto tell = [&](const std::string& part) {
    answer.text += part;
    if (!part.empty()) told(part);
  };
  bool is_ending = false;
  std::string error;
  while (engine_.has_work()) {
    for (const Event& event : engine_.step()) {
      if (event.request != id) continue;
      if (event.token && !is_ending) {
        ++answer.tokens;
        tell(stream.feed(event.token->id));
      }
      if (event.finish != Finish::no) answer.finish = event.finish;
      error = event.error;
    }
    if (is_ending || answer.finish != Finish::no || !(stream.is_stopped() || is_stopped())) continue;
    engine_.cancel(id);
    is_ending = true;
  }
  tell(stream.finish());
  if (stream.is_stopped()) answer.finish = Finish::end;
  turns_.emplace_back("assistant", answer.text);
  if (answer.finish == Finish::failed) {
    turns_.resize(turns_.size() - 2);
    throw UsageError(error);
  }
  return answer;
}

}  // namespace tutti::generate

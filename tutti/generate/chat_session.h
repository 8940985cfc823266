// ChatSession: a conversation with a model, turn by turn.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/generate/engine.h"
#include "tutti/io/chat_template/chat_encoding.h"
#include "tutti/io/chat_template/published_chat.h"

namespace tutti::generate {

struct ChatOptions {
  // What each turn asks, without its prompt. Turn t draws with the seed of `sampling` plus t.
  Request request = {};
  std::vector<std::string> stops = {};  // end an answer, without being part of it
  std::string system = {};              // the first message; "": none
  std::tm now = {};                     // for templates that name the day
};

struct ChatAnswer {
  std::string text;
  Finish finish = Finish::no;
  int64_t tokens = 0, prompt_tokens = 0;  // of the answer, and of the conversation before it
};

// For one thread. Engine, tokenizer and templates must outlive it, and nobody else may run steps of the engine
// meanwhile.
class ChatSession {
 public:
  // UsageError when the model brings no template.
  ChatSession(Engine& engine, const Tokenizer& tokenizer, const PublishedChat& chat, ChatOptions options);

  // Says `text` and returns the answer. Parts of it go to `told` as they come; between them `is_stopped` is asked, and
  // true ends the answer, of which what was said stays in the conversation. UsageError, after which the conversation is
  // as before, when it does not fit the context or the template refuses it.
  ChatAnswer say(const std::string& text, const std::function<void(std::string_view)>& told,
                 const std::function<bool()>& is_stopped);
  // Forgets all turns; the system message stays, or becomes another one.
  void reset() { turns_.clear(); }
  void reset(std::string system) { options_.system = std::move(system), reset(); }

  int64_t turns() const { return std::ssize(turns_) / 2; }

 private:
  std::vector<int32_t> prompt() const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const PublishedChat& chat_;
  const ChatEncoder encoder_;
  ChatOptions options_;
  std::vector<std::pair<std::string, std::string>> turns_;  // role, text
};

}  // namespace tutti::generate

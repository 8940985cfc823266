// Chat templates: the Jinja2 texts that published models turn conversations into prompts with.
//
// The language is the part of Jinja2 3.1 that published templates use, in the environment of transformers 5: sandboxed,
// trim_blocks and lstrip_blocks on, loop controls, {% generation %}, tojson, raise_exception, strftime_now. The output
// has the bytes that transformers gives. What is not supported is refused by name when a template is parsed, or at the
// latest when it would be needed. Templates come from strangers: one that does not end, or makes too much, is refused.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/runtime/json_document.h"

namespace tutti {

struct ChatTemplateLimits {
  size_t source_nbytes = size_t{1} << 20;
  int64_t steps = int64_t{1} << 24;  // nodes that are evaluated, values that are made (4 each), 8 bytes of text
  size_t text_nbytes = size_t{1} << 24;
  size_t values = size_t{1} << 20;  // in one list
};

// What a template sees. The documents of the values must outlive the call that reads them.
struct ChatInput {
  std::optional<JsonValue> messages;  // an array of objects
  std::optional<JsonValue> tools;
  std::optional<JsonValue> documents;
  bool add_generation_prompt = false;
  // By name, such as bos_token.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // Variables by name, such as enable_thinking.
  std::vector<std::pair<std::string, JsonValue>> extra;
  // strftime_now tells this time.
  std::tm now = {};
};

// A part of a rendered chat.
struct ChatSpan {
  std::string text;
  bool is_from_user = false;  // text of a message, tool, document or extra variable: no special token may come from it
  bool is_assistant = false;  // inside {% generation %}

  bool operator==(const ChatSpan&) const = default;
};

struct RenderedChat {
  std::vector<ChatSpan> spans;

  std::string text() const;
};

namespace jinja {
struct Template;
}

// Immutable; may be rendered by any thread.
class ChatTemplate {
 public:
  // UsageError, naming `name` and the line, for what is no template or is not supported.
  static ChatTemplate parse(std::string_view source, std::string_view name, const ChatTemplateLimits& limits = {});

  // UsageError, naming the line, when the template raises an exception, refers to what is not there, or exceeds limits.
  RenderedChat render(const ChatInput& input) const;

  // Whether the template marks what the assistant says by {% generation %}.
  bool has_generation() const;

 private:
  std::shared_ptr<const jinja::Template> template_;
};

}  // namespace tutti

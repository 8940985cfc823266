// The chat templates that a published model brings, and the special tokens that they name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/io/chat_template/chat_template.h"

namespace tutti {

class ModelMetadata;

struct PublishedChat {
  // By name; the usual one is "default", that for chats with tools may be "tool_use". Empty: the model has none.
  std::vector<std::pair<std::string, ChatTemplate>> templates;
  // Such as bos_token, for ChatInput.
  std::vector<std::pair<std::string, std::string>> special_tokens;

  bool has_template() const { return !templates.empty(); }
  // The template that transformers takes: "tool_use" for chats with tools, when there is one, or "default". A name
  // takes the template of that name. UsageError, which lists the names, when there is none.
  const ChatTemplate& choose(bool has_tools, std::string_view name = "") const;
};

// `path` is a folder with tokenizer_config.json, a file in one, or a GGUF file. In a folder, chat_template.jinja goes
// before chat_template of tokenizer_config.json, a text or a list of {name, template};
// additional_chat_templates/NAME.jinja are added. Tokens are the keys *_token of special_tokens_map.json and
// tokenizer_config.json, of which the latter goes before. UsageError for damaged files, and templates that are not
// supported.
PublishedChat read_published_chat(const std::string& path);

// The same from the keys of a GGUF file: tokenizer.chat_template and tokenizer.chat_template.NAME.
PublishedChat published_chat_of(const ModelMetadata& metadata, const std::string& path);

}  // namespace tutti

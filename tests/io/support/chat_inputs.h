// Inputs of chat templates from JSON, with the tokens and the clock of tests/io/chat_templates/oracle.py.
#pragma once

#include <string>

#include "tutti/io/chat_template/chat_template.h"

namespace tutti::testing {

// `json` is an object with messages, tools, documents, add_generation_prompt and extra variables; it must be kept.
inline ChatInput chat_input(const JsonValue& json) {
  ChatInput input;
  input.now = {
      .tm_sec = 4, .tm_min = 5, .tm_hour = 9, .tm_mday = 7, .tm_mon = 2, .tm_year = 126, .tm_wday = 6, .tm_yday = 65};
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  for (const auto& [key, value] : json) {
    if (key == "messages") input.messages = value;
    else if (key == "tools") input.tools = value;
    else if (key == "documents") input.documents = value;
    else if (key == "add_generation_prompt") input.add_generation_prompt = value.boolean();
    else input.extra.emplace_back(key, value);
  }
  return input;
}

// Element `i` of an array.
inline JsonValue json_item(const JsonValue& array, int i) {
  auto at = array.begin();
  for (; i > 0; --i) ++at;
  return (*at).value;
}

inline RenderedChat render_with(const std::string& source, const std::string& json,
                                const ChatTemplateLimits& limits = {}) {
  const JsonDocument document(json, {.name = "input"});
  return ChatTemplate::parse(source, "chat", limits).render(chat_input(document.top()));
}

}  // namespace tutti::testing

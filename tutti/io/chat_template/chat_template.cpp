#include "tutti/io/chat_template/chat_template.h"

#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/json_value.h"
#include "tutti/io/chat_template/parser.h"

namespace tutti {
namespace {

using jinja::Dict;
using jinja::kFromUser;
using jinja::Value;

// transformers drops the keys of messages whose value is null, and names the reasoning of a message as all templates
// know it (transformers 5.24, _normalize_chat_messages and _alias_reasoning_fields).
Value message_of(const JsonValue& json, jinja::Meter& meter) {
  if (!json.is_object()) json.fail("is {}; a message is an object with role and content", json.shown());
  Dict message;
  const auto add = [&](std::string_view key, const Value& value) {
    message.set(Value::of_text(key, kFromUser), value, meter);
  };
  std::optional<Value> reasoning;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = reasoning ? std::nullopt : json.find_set(name);
    if (found) reasoning = jinja::value_of_json(*found, kFromUser, meter);
  }
  if (reasoning) add("thinking", *reasoning);
  for (const auto& [key, value] : json)
    if (!value.is_null()) add(key, jinja::value_of_json(value, kFromUser, meter));
  if (reasoning) add("reasoning_content", *reasoning);
  return message;
}

Value messages_of(const JsonValue& json, jinja::Meter& meter) {
  if (!json.is_array()) json.fail("is {}; expected the list of messages", json.shown());
  std::vector<Value> messages;
  for (const auto& [key, message] : json) messages.push_back(message_of(message, meter));
  return jinja::List(std::move(messages));
}

}  // namespace

std::string RenderedChat::text() const {
  std::string text;
  for (const ChatSpan& span : spans) text += span.text;
  return text;
}

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view name, const ChatTemplateLimits& limits) {
  ChatTemplate made;
  made.template_ = std::make_shared<const jinja::Template>(jinja::Parser(source, name, limits).run());
  return made;
}

bool ChatTemplate::has_generation() const { return template_->has_generation; }

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  jinja::Scope variables(nullptr);
  // Its steps count for the conversion of the input alone.
  jinja::Meter meter(template_->name, template_->limits);
  const auto optional = [&](const std::optional<JsonValue>& json) {
    return json ? jinja::value_of_json(*json, kFromUser, meter) : Value();
  };
  for (const auto& [name, token] : input.special_tokens) variables.set(name, Value::of_text(token));
  for (const auto& [name, json] : input.extra) variables.set(name, jinja::value_of_json(json, kFromUser, meter));
  variables.set("messages", input.messages ? messages_of(*input.messages, meter) : Value(jinja::List()));
  variables.set("tools", optional(input.tools));
  variables.set("documents", optional(input.documents));
  variables.set("add_generation_prompt", input.add_generation_prompt);
  const jinja::MarkedText text = jinja::Interpreter(*template_, variables, input.now).run();
  RenderedChat rendered;
  size_t begin = 0;
  const auto add = [&](size_t end, jinja::Marks marks) {
    rendered.spans.push_back({.text = text.bytes().substr(begin, end - begin),
                              .is_from_user = (marks & kFromUser) != 0,
                              .is_assistant = (marks & jinja::kAssistant) != 0});
    begin = end;
  };
  for (const jinja::MarkedText::Run& run : text.runs()) add(run.end, run.marks);
  if (begin < text.size()) add(text.size(), 0);
  return rendered;
}

}  // namespace tutti

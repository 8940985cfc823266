// Attributes, items and slices of values.
#include <algorithm>

#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/loop_state.h"
#include "tutti/io/chat_template/python_text.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {
namespace {

// What getattr() of Python finds: methods, and the attributes of namespaces and `loop`.
std::optional<Value> attribute_of(const Value& value, std::string_view name, Meter& meter) {
  if (const Namespace* names = value.names()) {
    const Value* found = names->find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (LoopState* loop = value.loop()) return loop->attribute(name, meter);
  if (const Builtin method = find_method(value, name))
    return Callable{.name = std::string(name), .builtin = method, .self = value};
  if (is_forbidden_method(value, name))
    return Value::undefined(fmt::format("the method '{}' would change a {}, which the sandbox of templates forbids",
                                        name, value.type_name()));
  if (is_unsupported_method(value, name))
    meter.fail("the method '{}' of a {} is not supported", name, value.type_name());
  return std::nullopt;
}

// What value[key] of Python finds.
std::optional<Value> item_of(const Value& value, const Value& key, Meter& meter) {
  if (const Dict* dict = value.dict()) {
    const Value* found = dict->find(key, meter);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  const auto index = key.integer();
  if (!index) return std::nullopt;
  if (const List* list = value.list(); list != nullptr && list->is_indexed()) {
    const int64_t size = std::ssize(list->items);
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size) return std::nullopt;
    return list->items[static_cast<size_t>(at)];
  }
  if (const MarkedText* text = value.text()) {
    meter.text(text->size());
    const std::vector<size_t> starts = character_starts(text->bytes());
    const int64_t size = std::ssize(starts) - 1;
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size) return std::nullopt;
    return text->slice(starts[static_cast<size_t>(at)], starts[static_cast<size_t>(at) + 1]);
  }
  return std::nullopt;
}

// For messages.
std::string shown(const Value& value) {
  std::string text = value.text() != nullptr    ? value.text()->bytes()
                     : value.whole() != nullptr ? fmt::format("{}", *value.whole())
                                                : std::string(value.type_name());
  constexpr size_t kMostShown = 80;
  return text.size() > kMostShown ? text.substr(0, kMostShown) + "..." : text;
}

// The positions that a slice takes.
std::vector<size_t> positions(int64_t size, const Value& begin, const Value& end, const Value& step, Meter& meter) {
  const auto part = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const auto whole = value.integer();
    if (!whole) meter.fail("a slice has a {} in the place of an integer", value.type_name());
    return *whole;
  };
  const int64_t by = part(step, 1);
  if (by == 0) meter.fail("the step of a slice is 0");
  const int64_t least = by > 0 ? 0 : -1, most = by > 0 ? size : size - 1;
  const auto within = [&](int64_t at) { return at < 0 ? std::max(at + size, least) : std::min(at, most); };
  const int64_t from = begin.is_none() ? (by > 0 ? 0 : size - 1) : within(part(begin, 0));
  const int64_t to = end.is_none() ? (by > 0 ? size : -1) : within(part(end, 0));
  std::vector<size_t> taken;
  // The step may be as large as any integer; what is beyond the size makes no difference.
  const int64_t stride = std::clamp(by, -size - 1, size + 1);
  for (int64_t at = from; by > 0 ? at < to : at > to; at += stride) taken.push_back(static_cast<size_t>(at));
  return taken;
}

}  // namespace

Value Interpreter::attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) meter_.fail_with(value.hint());
  if (auto found = attribute_of(value, name, meter_)) return *found;
  if (auto found = item_of(value, Value::of_text(name), meter_)) return *found;
  return Value::undefined(fmt::format("a {} has no attribute '{}'", value.type_name(), name));
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) meter_.fail_with(value.hint());
  if (auto found = item_of(value, key, meter_)) return *found;
  if (key.text() != nullptr)
    if (auto found = attribute_of(value, key.text()->bytes(), meter_)) return *found;
  return Value::undefined(fmt::format("a {} has no item '{}'", value.type_name(), shown(key)));
}

Value Interpreter::slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (value.is_undefined()) meter_.fail_with(value.hint());
  if (const List* list = value.list(); list != nullptr && list->is_indexed()) {
    std::vector<Value> items;
    for (const size_t at : positions(std::ssize(list->items), begin, end, step, meter_))
      items.push_back(list->items[at]);
    meter_.values(items.size());
    return List(std::move(items), list->kind);
  }
  const MarkedText* text = value.text();
  if (text == nullptr) meter_.fail("a {} has no slices", value.type_name());
  meter_.text(text->size());
  const std::vector<size_t> starts = character_starts(text->bytes());
  MarkedText made;
  for (const size_t at : positions(std::ssize(starts) - 1, begin, end, step, meter_))
    made.append(*text, starts[at], starts[at + 1]);
  return made;
}

}  // namespace tutti::jinja

#include "tutti/io/chat_template/json_value.h"

#include <algorithm>
#include <cmath>

#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/value_text.h"
#include "tutti/io/utf8.h"

namespace tutti::jinja {
namespace {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string between = ", ";
  std::string behind_key = ": ";
};

class JsonText {
 public:
  JsonText(const JsonStyle& style, Meter& meter) : style_(style), meter_(meter) {}

  void add(const Value& value, int level) {
    meter_.step();
    if (const MarkedText* text = value.text()) add_text(*text);
    else if (value.is_none()) made_.append("null");
    else if (const bool* truth = value.boolean()) made_.append(*truth ? "true" : "false");
    else if (const double* number = value.number()) made_.append(number_text(*number));
    else if (value.whole() != nullptr) made_.append(to_text(value, meter_));
    else if (const List* list = value.list(); list != nullptr && list->kind <= ListKind::tuple) add_list(*list, level);
    else if (const Dict* dict = value.dict()) add_dict(*dict, level);
    else meter_.fail("tojson: a {} is not serializable as JSON", value.type_name());
    meter_.text(made_.size() - charged_);
    meter_.limit_text(made_.size());
    charged_ = made_.size();
  }
  MarkedText take() { return std::move(made_); }

 private:
  static std::string number_text(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  void new_line(int level) {
    if (!style_.indent) return;
    made_.append("\n");
    for (int i = 0; i < level; ++i) made_.append(*style_.indent);
  }

  void add_list(const List& list, int level) {
    if (list.items.empty()) return made_.append("[]");
    made_.append("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) made_.append(style_.between);
      new_line(level + 1);
      add(list.items[i], level + 1);
    }
    new_line(level);
    made_.append("]");
  }

  void add_dict(const Dict& dict, int level) {
    if (dict.entries.empty()) return made_.append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return is_less(a->first, b->first, meter_); });
    made_.append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) made_.append(style_.between);
      new_line(level + 1);
      add_key(entries[i]->first);
      made_.append(style_.behind_key);
      add(entries[i]->second, level + 1);
    }
    new_line(level);
    made_.append("}");
  }

  void add_key(const Value& key) {
    if (const MarkedText* text = key.text()) return add_text(*text);
    made_.append("\"");
    add(key, 0);
    made_.append("\"");
  }

  void add_text(const MarkedText& text) {
    const std::string_view bytes = text.bytes();
    made_.append("\"");
    for (size_t at = 0; at < bytes.size();) {
      const size_t nbytes = std::max<size_t>(io::utf8_sequence_nbytes(bytes.substr(at)), 1);
      const uint32_t c = io::utf8_decode(bytes.substr(at, nbytes));
      const std::string escape = escape_of(c);
      if (escape.empty()) made_.append(text, at, at + nbytes);
      else made_.append(escape, text.marks_at(at));
      at += nbytes;
    }
    made_.append("\"");
  }

  std::string escape_of(uint32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000)) return fmt::format("\\u{:04x}", c);
    if (style_.ensure_ascii && c >= 0x10000)
      return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    return {};
  }

  const JsonStyle& style_;
  Meter& meter_;
  MarkedText made_;
  size_t charged_ = 0;
};

}  // namespace

Value value_of_json(const JsonValue& json, Marks marks, Meter& meter) {
  meter.step();
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.boolean();
  if (json.is_whole()) return json.whole();
  if (json.is_number()) return json.number();
  if (json.is_text()) {
    meter.text(json.text().size());
    return Value::of_text(json.text(), marks);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& [key, item] : json) items.push_back(value_of_json(item, marks, meter));
    return List(std::move(items));
  }
  Dict dict;
  for (const auto& [key, value] : json) dict.set(Value::of_text(key, marks), value_of_json(value, marks, meter), meter);
  return dict;
}

Value to_json(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [ensure_ascii, indent, separators, sort_keys] =
      arguments.bind<4>("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, meter);
  JsonStyle style{.ensure_ascii = ensure_ascii && ensure_ascii->is_true(),
                  .sort_keys = sort_keys && sort_keys->is_true()};
  if (indent && !indent->is_none()) {
    if (indent->text() != nullptr) style.indent = indent->text()->bytes();
    else
      style.indent = std::string(
          static_cast<size_t>(std::clamp<int64_t>(whole_argument(indent, "tojson: indent", meter), 0, 1000)), ' ');
    style.between = ",";
  }
  if (separators && !separators->is_none()) {
    const List* pair = separators->list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr ||
        pair->items[1].text() == nullptr)
      meter.fail("tojson: separators are two texts, such as (',', ':')");
    style.between = pair->items[0].text()->bytes();
    style.behind_key = pair->items[1].text()->bytes();
  }
  JsonText text(style, meter);
  text.add(self, 0);
  return text.take();
}

Value from_json(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("from_json", {}, meter);
  const MarkedText& text = text_argument(self, "from_json", meter);
  Marks marks = 0;
  for (const MarkedText::Run& run : text.runs()) marks |= run.marks;
  const JsonDocument document(text.bytes(), {.name = fmt::format("{} of from_json", interpreter.name())});
  return value_of_json(document.top(), marks, meter);
}

}  // namespace tutti::jinja

// JsonWriter: builds the text of a JSON value piece by piece. JSON is read with runtime/json_document.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// `text` as a quoted and escaped JSON string; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

// Members and elements are written in the order of the calls; repeated keys are not noticed. Not thread-safe.
//
//   JsonWriter json;
//   json.object().member("step", 3).key("ranks").array().value(0).value(1).end().end();
//   json.take()  ->  {"step":3,"ranks":[0,1]}
class JsonWriter {
 public:
  // 0 writes one line without spaces; otherwise each member and element has a line of its own, indented by that many
  // spaces per level.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& object();  // opens `{`, to be closed by end()
  JsonWriter& array();   // opens `[`
  JsonWriter& end();     // closes the innermost
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth);
  JsonWriter& value(double number);  // null where it is not finite, as JSON has no other number
  JsonWriter& value(int64_t number);
  JsonWriter& value(int number) { return value(static_cast<int64_t>(number)); }
  JsonWriter& value(uint64_t number);
  JsonWriter& value(std::nullptr_t);
  JsonWriter& raw(std::string_view json);  // a value that is JSON already

  template <class Value>
  JsonWriter& member(std::string_view name, Value&& its_value) {
    return key(name).value(its_value);
  }

  // The text so far, which must be whole; the writer begins again.
  std::string take();

 private:
  JsonWriter& open(char bracket, char closing);
  void begin_value();
  void new_line();

  struct Level {
    char closing;
    bool is_empty = true;
  };
  int indent_;
  bool after_key_ = false;
  std::vector<Level> levels_;
  std::string text_;
};

}  // namespace tutti

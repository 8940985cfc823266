#include "tutti/io/chat_template/attribute_path.h"

#include <charconv>

#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/python_text.h"

namespace tutti::jinja {
namespace {

constexpr size_t kMostParts = 100;

}  // namespace

AttributePath::AttributePath(const std::optional<Value>& path, Interpreter& interpreter) : interpreter_(interpreter) {
  if (!path || path->is_none()) return;
  if (path->whole() != nullptr) {
    parts_.push_back(*path);
    return;
  }
  for (MarkedText& part :
       split_at(text_argument(path, "the name of an attribute", interpreter.meter()), ".", -1, kMostParts)) {
    const std::string& text = part.bytes();
    int64_t whole = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
    const bool is_whole = error == std::errc() && end == text.data() + text.size() && !text.starts_with('-');
    parts_.push_back(is_whole ? Value(whole) : Value(std::move(part)));
  }
}

Value AttributePath::of(const Value& value, const std::optional<Value>& otherwise) const {
  Value found = value;
  for (const Value& part : parts_) {
    found = interpreter_.item(found, part);
    if (otherwise && !otherwise->is_none() && found.is_undefined()) found = *otherwise;
  }
  return found;
}

}  // namespace tutti::jinja

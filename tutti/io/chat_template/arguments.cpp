#include "tutti/io/chat_template/callable.h"

namespace tutti::jinja {

void Arguments::bind_to(std::string_view function, const std::string_view* names, std::optional<Value>* bound,
                        size_t count, const Meter& meter) const {
  if (positional.size() > count)
    meter.fail("{} takes {} arguments, not {}", function, count, positional.size() + keywords.size());
  for (size_t i = 0; i < positional.size(); ++i) bound[i] = positional[i];
  for (const auto& [name, value] : keywords) {
    size_t i = 0;
    while (i < count && names[i] != name) ++i;
    if (i == count) meter.fail("{} has no argument '{}'", function, name);
    if (bound[i]) meter.fail("{} gets its argument '{}' twice", function, name);
    bound[i] = value;
  }
}

const MarkedText& text_argument(const std::optional<Value>& value, std::string_view what, const Meter& meter) {
  if (!value) meter.fail("{} is missing", what);
  if (value->text() == nullptr) meter.fail("{} is a {}; expected a str", what, value->type_name());
  return *value->text();
}

int64_t whole_argument(const std::optional<Value>& value, std::string_view what, const Meter& meter) {
  if (!value) meter.fail("{} is missing", what);
  const auto whole = value->integer();
  if (!whole) meter.fail("{} is a {}; expected an int", what, value->type_name());
  return *whole;
}

}  // namespace tutti::jinja

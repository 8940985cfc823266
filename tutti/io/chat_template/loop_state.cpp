#include "tutti/io/chat_template/loop_state.h"

#include "tutti/io/chat_template/meter.h"

namespace tutti::jinja {

const std::optional<Value>& LoopState::look_ahead() {
  if (!has_looked_ahead) {
    ahead = pull();
    has_looked_ahead = true;
  }
  return ahead;
}

bool LoopState::advance() {
  std::optional<Value> next = look_ahead();
  has_looked_ahead = false;
  ahead.reset();
  previous = std::move(current);
  current = std::move(next);
  ++index0;
  return current.has_value();
}

std::optional<Value> LoopState::attribute(std::string_view name, Meter& meter) {
  if (name == "index0") return Value(index0);
  if (name == "index") return Value(index0 + 1);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(!look_ahead().has_value());
  if (name == "previtem") return index0 == 0 ? Value::undefined("there is no previous item") : *previous;
  if (name == "nextitem") return look_ahead() ? *ahead : Value::undefined("there is no next item");
  if (name == "depth") return Value(int64_t{depth});
  if (name == "depth0") return Value(int64_t{depth} - 1);
  if (name == "length" || name == "revindex" || name == "revindex0") {
    // What is left is taken at once and given again.
    std::vector<Value> left;
    if (look_ahead()) left.push_back(*ahead);
    while (std::optional<Value> item = has_looked_ahead && ahead ? pull() : std::nullopt) {
      left.push_back(std::move(*item));
      meter.values(left.size());
    }
    const int64_t behind = std::ssize(left);
    pull = [items = std::move(left), next = size_t{1}]() mutable -> std::optional<Value> {
      return next < items.size() ? std::optional<Value>(items[next++]) : std::nullopt;
    };
    return name == "length" ? Value(index0 + 1 + behind) : Value(name == "revindex" ? behind + 1 : behind);
  }
  return std::nullopt;
}

}  // namespace tutti::jinja

// What `loop` knows inside a for. Values are taken from the source one by one, one ahead only when that is asked for.
#pragma once

#include <functional>
#include <optional>

#include "tutti/io/chat_template/value.h"

namespace tutti::jinja {

struct LoopState {
  std::function<std::optional<Value>()> pull;
  std::optional<Value> previous = {};
  std::optional<Value> current = {};
  std::optional<Value> ahead = {};
  bool has_looked_ahead = false;
  int64_t index0 = -1;
  int depth = 1;

  // Moves on; false at the end.
  bool advance();
  const std::optional<Value>& look_ahead();
  // loop.NAME; nothing for names that loop does not have.
  std::optional<Value> attribute(std::string_view name, Meter& meter);
};

}  // namespace tutti::jinja

#include "tutti/io/chat_template/meter.h"

#include "tutti/core/error.h"

namespace tutti::jinja {

void Meter::fail_with(const std::string& message) const {
  throw UsageError(fmt::format("{}:{}: {}", name_, line, message));
}

}  // namespace tutti::jinja

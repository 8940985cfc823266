#include "tutti/core/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <vector>

namespace tutti {

static size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

std::string nearest_match(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string unknown_name_message(std::string_view what, std::string_view name, std::span<const std::string> known) {
  const std::string nearest = nearest_match(name, known);
  std::string message = fmt::format("unknown {} '{}'", what, name);
  message += nearest.empty() ? "." : fmt::format("; did you mean '{}'?", nearest);
  return message + fmt::format(" Known: {}", fmt::join(known, ", "));
}

namespace detail {

void throw_usage(std::string message) { throw UsageError(std::move(message)); }

void throw_environment(std::string message) { throw EnvironmentError(std::move(message)); }

void throw_internal(const char* file, int line, const char* condition, std::string message) {
  throw InternalError(fmt::format("internal error at {}:{}: {} does not hold{}{}. Please report this message.", file,
                                  line, condition, message.empty() ? "" : ": ", message));
}

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace detail
}  // namespace tutti

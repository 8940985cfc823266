#include "tutti/job/launch/failure.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tutti::comm {

LaunchFailure* cause_of(std::vector<LaunchFailure>& failures) {
  const auto cause =
      std::max_element(failures.begin(), failures.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  return cause == failures.end() ? nullptr : &*cause;
}

void print_failure(LaunchFailure& failure) {
  if (std::exchange(failure.is_printed, true)) return;
  std::string text = failure.text + "\n";
  if (!failure.last_lines.empty()) text += "its last lines on stderr:\n";
  for (const std::string& line : failure.last_lines) text += "  " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void print_notice(const std::string& text) { std::fprintf(stderr, "tutti: %s\n", text.c_str()); }

}  // namespace tutti::comm

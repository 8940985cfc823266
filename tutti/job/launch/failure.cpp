#include "tutti/job/launch/failure.h"

#include <algorithm>
#include <cstdio>

namespace tutti::comm {

const LaunchFailure* cause_of(const std::vector<LaunchFailure>& failures) {
  const auto cause = std::max_element(failures.begin(), failures.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  return cause == failures.end() ? nullptr : &*cause;
}

void print_failure(const LaunchFailure& failure) {
  std::string text = failure.text + "\n";
  if (!failure.last_lines.empty()) text += "its last lines on stderr:\n";
  for (const std::string& line : failure.last_lines) text += "  " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace tutti::comm

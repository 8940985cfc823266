#include "tutti/train/survival/planted_loss.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::train {
namespace {

// "prepared:3" of this process's seat.
std::vector<std::string> planted_here() {
  const auto text_of = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string list = text_of("TUTTI_LOSE_RANK"), mine = text_of("LOCAL_RANK") + ":";
  std::vector<std::string> here;
  if (const std::string restart = text_of("TORCHELASTIC_RESTART_COUNT"); !restart.empty() && restart != "0")
    return here;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (const std::string one = list.substr(begin, end - begin); one.starts_with(mine))
      here.push_back(one.substr(mine.size()));
    begin = end + 1;
  }
  return here;
}

}  // namespace

bool is_lost_at(std::string_view point, int64_t step) {
  static const std::vector<std::string> planted = planted_here();
  for (const std::string& one : planted) {
    if (one == fmt::format("{}:{}", point, step)) return true;
  }
  return false;
}

void lose_this_rank() {
  while (true) kill(getpid(), SIGKILL);
}

}  // namespace tutti::train

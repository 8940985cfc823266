#include "tests/layouts/support/ranks.h"

#include <cstdio>
#include <exception>

#include <fmt/format.h>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"

namespace tutti::layouts {

std::vector<std::string> transports() {
  std::vector<std::string> names{"threads"};
  for (const comm::TransportInfo& info : comm::known_transports()) {
    if (info.available && info.name == "shm") names.push_back(info.name);
  }
  return names;
}

std::string failures_of_ranks(const std::string& transport, int ranks,
                              const std::function<void(comm::ProcessGroup&)>& fn) {
  if (transport == "threads") {
    try {
      comm::run_ranks(ranks, fn);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  std::fflush(stdout);  // each process has a copy of what is not written yet
  std::string text;
  for (const comm::ForkedResult& rank : comm::run_world(ranks, fn, {.transport = transport})) {
    text += rank.error;
    if (rank.wait_status != 0) text += fmt::format("a rank ended with status {}\n", rank.wait_status);
  }
  return text;
}

}  // namespace tutti::layouts

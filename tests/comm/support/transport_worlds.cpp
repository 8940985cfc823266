#include "tests/comm/support/transport_worlds.h"

#include <gtest/gtest.h>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"

namespace tutti::comm {

std::vector<std::string> world_transports() {
  std::vector<std::string> names;
  for (const TransportInfo& info : known_transports()) {
    if (info.available && info.name != "mpi" && info.name != "fake") names.push_back(info.name);
  }
  return names;
}

void run_over(const std::string& transport, int ranks, const std::function<void(ProcessGroup&)>& fn) {
  if (transport == "threads") return run_ranks(ranks, fn);
  const auto results = run_world(ranks, fn, {.transport = transport});
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << transport << ", rank " << r << ": " << results[r].error;
}

}  // namespace tutti::comm

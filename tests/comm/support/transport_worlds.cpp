#include "tests/comm/support/transport_worlds.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/store/tcp_store.h"
#include "tutti/comm/store/tcp_store_server.h"
#include "tutti/comm/transports.h"
#include "tutti/runtime/rank_context.h"

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
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
  const auto rank_main = [&](int rank) {
    if (transport == "hier") setenv("TUTTI_HOST_ID", std::to_string(rank * 2 / ranks).c_str(), 1);
    RankContext context({.rank = rank, .world_size = ranks, .threads = 1});
    const RankContext::Scope scope(context);
    const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port(), .job_key = ""});
    fn(*init_process_group({.store = store, .rank = rank, .world_size = ranks, .group = {.name = "0", .transport = transport}}));
    destroy_process_group();
  };
  const auto results = fork_processes(ranks, rank_main);
  for (size_t r = 0; r < results.size(); ++r) EXPECT_TRUE(results[r].succeeded()) << transport << ", rank " << r << ": " << results[r].error;
}

}  // namespace tutti::comm

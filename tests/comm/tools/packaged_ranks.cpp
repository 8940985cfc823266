// Two ranks that run packages with collectives in a runtime of packages, over each transport between processes:
//   packaged_ranks LIBRARY       path of libtutti_runtime.so
#include <cstdio>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/packaged_in_c.h"
#include "tests/support/temporary_folder.h"
#include "tutti/comm/transports.h"

int main(int argc, char** argv) {
  using namespace tutti::comm;
  if (argc != 2) return std::fprintf(stderr, "packaged_ranks LIBRARY\n"), 2;
  int faults = 0;
  for (const TransportInfo& info : known_transports()) {
    if (!info.available || (info.name != "shm" && info.name != "gloo")) continue;
    const tutti::testing::TemporaryFolder folder;
    const auto results = run_world(
        2, [&](ProcessGroup& group) { packaged::check_in_c(packaged::functions_of(argv[1]), group, folder.path()); },
        {.transport = info.name});
    for (const ForkedResult& result : results) {
      std::printf("%s: %s\n", info.name.c_str(), result.succeeded() ? "equal bits" : result.error.c_str());
      faults += !result.succeeded();
    }
  }
  return faults;
}

// Two ranks and packages with collectives, for the test of the runtime that was built alone:
//   packaged_ranks LIBRARY           runs them in LIBRARY, a libtutti_runtime.so, over each transport between processes
//   packaged_ranks --write FOLDER    writes FOLDER/mlp.RANK and FOLDER/exchanges.RANK, and beside each the text that
//                                    examples/run_package/run_on_ranks.c prints of it, in .txt: that of the live
//                                    function; and FOLDER/whole.RANK, whose argument is i64
#include <cstdio>
#include <string_view>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/packaged_in_c.h"
#include "tests/support/temporary_folder.h"
#include "tutti/comm/transports.h"

namespace {

using namespace tutti::comm;

int report(const std::string& what, const std::vector<ForkedResult>& results) {
  int faults = 0;
  for (const ForkedResult& result : results) {
    std::printf("%s: %s\n", what.c_str(), result.succeeded() ? "equal bits" : result.error.c_str());
    faults += !result.succeeded();
  }
  return faults;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--write")
    return report("written", run_world(2, [&](ProcessGroup& group) { packaged::write_packages(group, argv[2]); }));
  if (argc != 2) return std::fprintf(stderr, "packaged_ranks LIBRARY | --write FOLDER\n"), 2;
  int faults = 0;
  for (const TransportInfo& info : known_transports()) {
    if (!info.available || (info.name != "shm" && info.name != "gloo")) continue;
    const tutti::testing::TemporaryFolder folder;
    faults += report(info.name, run_world(2,
                                          [&](ProcessGroup& group) {
                                            packaged::check_in_c(packaged::functions_of(argv[1]), group, folder.path());
                                          },
                                          {.transport = info.name}));
  }
  return faults;
}

// This test program doubles as the program the launcher starts: with TUTTI_TEST_RANK_PROGRAM set it joins the group,
// does what the variable says, and ends before any test runs.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/groups.h"
#include "tutti/core/error.h"
#include "tutti/job/host/job_file.h"
#include "tutti/job/launch/launched.h"

namespace tutti::comm {
namespace {

void run_program(std::string_view name) {
  tie_to_launcher();
  const auto group = init_process_group();
  if (name == "sum") {
    std::vector<float> values = rank_values(group->rank(), 5000);
    group->all_reduce_values<float>(values);
    TUTTI_CHECK(same_bits(values, serial_tree(group->size(), 5000)), "other bits");
  } else if (name == "die") {
    group->barrier();
    if (group->rank() == 1) raise(SIGKILL);
    group->barrier();
  } else if (name == "lost when done" || name == "lost when left") {
    // The last rank is killed when the others have ended well.
    const auto job = JobFile::inherited();
    if (name == "lost when done") job->note_done();
    const bool is_last = group->rank() + 1 == group->size();
    while (is_last && (job->team() == 0 || job->members(job->team()).size() != 1)) usleep(10'000);
    if (is_last) raise(SIGKILL);
  } else if (name == "stray") {
    // Rank 0 joins the launcher's process group, and rank 1 fails.
    if (group->rank() == 0) TUTTI_CHECK(setpgid(0, getpgid(getppid())) == 0, "cannot leave the group");
    group->barrier();
    if (group->rank() == 1) _exit(7);
    while (true) pause();
  } else if (name == "orphan") {
    // Tells the test its pid, then waits for a signal that comes only when the launcher is gone.
    group->barrier();
    std::printf("%d\n", getpid());
    std::fflush(stdout);
    while (true) pause();
  }
}

[[maybe_unused]] const bool ran = [] {
  const char* name = std::getenv("TUTTI_TEST_RANK_PROGRAM");
  if (name == nullptr) return false;
  try {
    run_program(name);
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(1);
  }
}();

}  // namespace
}  // namespace tutti::comm

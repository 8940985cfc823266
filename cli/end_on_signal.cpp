#include "cli/end_on_signal.h"

#include <unistd.h>

#include "bench/layouts_bench.h"
#include "cli/runs_folder.h"

namespace tutti::cli {

EndOnSignal::EndOnSignal(RunsFolder& folder) {
  sigemptyset(&signals_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, number);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  watch_ = std::jthread([this, &folder](const std::stop_token& stop) {
    const timespec moment{.tv_sec = 0, .tv_nsec = 50'000'000};
    while (!stop.stop_requested()) {
      const int number = sigtimedwait(&signals_, nullptr, &moment);
      if (number < 0) continue;
      bench::kill_running_layout();
      folder.remove();
      _exit(128 + number);
    }
  });
}

}  // namespace tutti::cli

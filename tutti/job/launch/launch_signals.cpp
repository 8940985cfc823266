#include "tutti/job/launch/launch_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/core/error.h"

namespace tutti::comm {

LaunchSignals::LaunchSignals() {
  sigemptyset(&set_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&set_, number);
  pthread_sigmask(SIG_BLOCK, &set_, &old_);
  fd_ = signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ >= 0) return;
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  detail::throw_environment(fmt::format("cannot watch for signals: {}", detail::errno_text(error)));
}

LaunchSignals::~LaunchSignals() {
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

std::optional<int> LaunchSignals::take() const {
  signalfd_siginfo info{};
  if (read(fd_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool asks_for_the_end(int number) { return number == SIGINT || number == SIGTERM || number == SIGHUP; }

}  // namespace tutti::comm

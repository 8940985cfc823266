#include "tutti/diagnose/dump_signal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/diagnose/flight_recorder.h"

namespace tutti::comm {
namespace {

// What the handler reaches. Written before the handler is installed, never freed.
std::atomic<int> wake_descriptor{-1};
std::atomic<pid_t> owner{0};  // a forked child has the handler but not the thread
struct sigaction previous;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

struct Recorders {
  std::mutex mutex;
  std::vector<FlightRecorder*> all;
  static Recorders& instance() {
    static auto* recorders = new Recorders;  // the thread may still run when the program ends
    return *recorders;
  }
};

void on_signal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  if (owner.load() == getpid()) {
    const uint64_t one = 1;
    // Fails only when a dump is already asked for more often than the counter can hold.
    [[maybe_unused]] const ssize_t written = write(wake_descriptor.load(), &one, sizeof one);
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    if (previous.sa_sigaction != nullptr) previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  }
  errno = saved;
}

void dump_all() {
  Recorders& recorders = Recorders::instance();
  std::lock_guard lock(recorders.mutex);
  for (const FlightRecorder* recorder : recorders.all) {
    try {
      std::fprintf(stderr, "tutti: rank %d: the last calls are in %s\n", recorder->rank(),
                   recorder->dump("SIGUSR1").c_str());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "tutti: rank %d: the last calls could not be written: %s\n", recorder->rank(), error.what());
    }
  }
}

void serve(int descriptor) {
  pthread_setname_np(pthread_self(), "tutti-dump");
  uint64_t count = 0;
  while (true) {
    const ssize_t got = read(descriptor, &count, sizeof count);
    if (got == sizeof count) dump_all();
    else if (errno != EINTR) return;
  }
}

}  // namespace

void install_dump_signal() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (owner.load() == getpid()) return;
  const bool inherited = owner.load() != 0;  // by fork: the handler stands already
  const int descriptor = eventfd(0, EFD_CLOEXEC);
  TUTTI_CHECK_ENV(descriptor >= 0, "cannot make an event descriptor for SIGUSR1: {}", tutti::detail::errno_text(errno));
  if (const int old = wake_descriptor.exchange(descriptor); old >= 0) close(old);
  // The thread takes no signals of the program.
  sigset_t everything, before;
  sigfillset(&everything);
  pthread_sigmask(SIG_SETMASK, &everything, &before);
  try {
    std::thread(serve, descriptor).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  owner.store(getpid());
  if (inherited) return;
  sigaction(SIGUSR1, nullptr, &previous);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_mask = previous.sa_mask;
  // Calls that wait in the kernel go on, unless the program's own handler wants them interrupted.
  const bool own =
      (previous.sa_flags & SA_SIGINFO) != 0 || (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  action.sa_flags = SA_SIGINFO | (own ? previous.sa_flags & (SA_RESTART | SA_ONSTACK | SA_NODEFER) : SA_RESTART);
  sigaction(SIGUSR1, &action, nullptr);
}

namespace detail {

void add_to_dump_signal(FlightRecorder& recorder) {
  Recorders& recorders = Recorders::instance();
  std::lock_guard lock(recorders.mutex);
  recorders.all.push_back(&recorder);
}

void remove_from_dump_signal(FlightRecorder& recorder) {
  Recorders& recorders = Recorders::instance();
  std::lock_guard lock(recorders.mutex);
  std::erase(recorders.all, &recorder);
}

}  // namespace detail
}  // namespace tutti::comm

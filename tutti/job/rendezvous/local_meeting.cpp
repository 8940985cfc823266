#include "tutti/job/rendezvous/local_meeting.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "tutti/job/deadline.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {
namespace {

constexpr size_t kMaxMessage = 4200;  // a port and a job key
constexpr int kPatienceMs = 2000;     // with a caller who says nothing

struct ProcessStatus {
  int parent = 0;
  std::string name, start;
};

// From /proc/PID/stat: "pid (name) state parent ...", where the name may have spaces and brackets.
ProcessStatus read_status(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return {};
  ProcessStatus status{.name = text.substr(open + 1, close - open - 1)};
  std::istringstream fields(text.substr(close + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {  // as man 5 proc counts them
    if (number == 4) status.parent = std::atoi(field.c_str());
    if (number == 22) status.start = field;
  }
  return status;
}

// Whether the process was started with all of these: "NAME=value". False for a process of another user.
bool was_started_with(int pid, const std::set<std::string>& variables) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid));
  size_t found = 0;
  for (std::string entry; std::getline(file, entry, '\0');) found += variables.contains(entry);
  return found == variables.size();
}

// The address of the door: in the namespace of names without files.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  TUTTI_ASSERT(name.size() + 1 <= sizeof address.sun_path);
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool is_of_this_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void set_patience(int fd) {
  const timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = kPatienceMs % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

std::string receive(int fd) {
  std::string text(kMaxMessage, '\0');
  const ssize_t got = recv(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

// One try. False when there is no door, or not yet the one of this rank's store.
bool try_to_knock(const LocalMeetingPlace& place, const std::string& who, StoreTicket& ticket) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  TUTTI_CHECK_ENV(fd, "cannot make a socket: {}", detail::errno_text(errno));
  set_patience(fd.get());
  sockaddr_un address;
  const socklen_t size = address_of(place.name, address);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return false;
  TUTTI_CHECK_ENV(
      is_of_this_user(fd.get()),
      "the place where {} meet, '{}', is taken by a process of another user; set MASTER_ADDR and MASTER_PORT",
      place.people, place.name);
  if (send(fd.get(), who.data(), who.size(), MSG_NOSIGNAL) < 0) return false;
  const std::string answer = receive(fd.get());
  const size_t space = answer.find(' ');
  if (space == std::string::npos) return false;
  const auto [end, error] = std::from_chars(answer.data(), answer.data() + space, ticket.port);
  ticket.job_key = answer.substr(space + 1);
  return error == std::errc() && end == answer.data() + space;
}

}  // namespace

LauncherProcess find_launcher_process(const char* rank_variable) {
  std::set<std::string> mine;
  for (const char* name : {rank_variable, "PMIX_NAMESPACE", "PMI_FD", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    if (const char* value = std::getenv(name)) mine.insert(fmt::format("{}={}", name, value));
  }
  int pid = getppid();
  ProcessStatus status = read_status(pid);
  while (pid > 1 && was_started_with(pid, mine)) {
    pid = status.parent;
    status = read_status(pid);
  }
  return {.pid = pid, .start = status.start, .name = status.name};
}

LocalMeetingPlace local_meeting_place(const char* rank_variable) {
  const LauncherProcess launcher = find_launcher_process(rank_variable);
  return {.name = fmt::format("tutti/store/{}/{}/{}", geteuid(), launcher.pid, launcher.start),
          .people = fmt::format("the ranks that {} (pid {}) has started",
                                launcher.name.empty() ? "a process" : launcher.name, launcher.pid)};
}

LocalDoor::LocalDoor(const LocalMeetingPlace& place, StoreTicket ticket, int world_size)
    : ticket_(std::move(ticket)),
      listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  TUTTI_CHECK_ENV(listener_ && stop_, "cannot make a socket: {}", detail::errno_text(errno));
  sockaddr_un address;
  const socklen_t size = address_of(place.name, address);
  TUTTI_CHECK_ENV(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                      listen(listener_.get(), 1024) == 0,
                  "rank 0 cannot open the place '{}' where {} meet: {}; does rank 0 hold another store? Set "
                  "MASTER_ADDR and MASTER_PORT to meet elsewhere",
                  place.name, place.people, detail::errno_text(errno));
  // Signals are for the threads of the program, not for this one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, world_size] { run(world_size); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LocalDoor::~LocalDoor() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void LocalDoor::run(int world_size) {
  std::set<std::string> served;
  const std::string answer = fmt::format("{} {}", ticket_.port, ticket_.job_key);
  while (static_cast<int>(served.size()) < world_size - 1) {
    pollfd fds[2] = {{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                     {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    const UniqueFd caller(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller || !is_of_this_user(caller.get())) continue;
    set_patience(caller.get());
    const std::string who = receive(caller.get());
    // "1/2": a rank of this job that has not been here. One that has is closed the door, and comes again.
    if (!who.ends_with(fmt::format("/{}", world_size)) || served.contains(who)) continue;
    if (send(caller.get(), answer.data(), answer.size(), MSG_NOSIGNAL) > 0) served.insert(who);
  }
  // All have come: whoever calls now wants the next store.
  const UniqueFd closed = std::move(listener_);
}

StoreTicket knock(const LocalMeetingPlace& place, int rank, int world_size, std::chrono::milliseconds timeout) {
  const auto end = deadline_after(timeout);
  const std::string who = fmt::format("{}/{}", rank, world_size);
  StoreTicket ticket;
  while (!try_to_knock(place, who, ticket)) {
    if (std::chrono::steady_clock::now() >= end) {
      throw StoreTimeout(fmt::format(
          "rank {} of {}: rank 0 of {} has opened no store within {:.1f} s; has it ended, or does it not call "
          "init_process_group()? Ranks in containers of "
          "their own need MASTER_ADDR and MASTER_PORT, set for all to the host of rank 0 and a free port there",
          rank, world_size, place.people, static_cast<double>(timeout.count()) / 1000));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ticket;
}

}  // namespace tutti::comm

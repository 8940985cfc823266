#include "tutti/comm/gloo/handover.h"

#include <fcntl.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>

#include "tutti/core/error.h"
#include "tutti/job/store/socket.h"

namespace tutti::comm {
namespace {

namespace tcp = gloo::transport::tcp;
using gloo::transport::Context;

// Deadlines are kept elsewhere: gloo's own would close connections that are in use.
constexpr std::chrono::milliseconds kNoTimeout = std::chrono::hours(24 * 365);
constexpr int kConnectMilliseconds = 5000;
// A stranger that is accepted first and leaves at once makes gloo give the pair up.
constexpr int kMostTries = 16;

// Runs `work` in the thread in which gloo waits for its connections: nothing else happens to them meanwhile. The wait
// for it has no limit of its own, for all that `work` waits for has.
class InThreadOfGloo final : public tcp::Handler {
 public:
  InThreadOfGloo(tcp::Device& device, std::function<void()> work)
      : device_(device), work_(std::move(work)), event_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {
    TUTTI_CHECK_ENV(event_, "no descriptor left: {}", detail::errno_text(errno));
    device_.registerDescriptor(event_.get(), EPOLLIN, this);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_; });
    if (error_) std::rethrow_exception(error_);
  }

  void handleEvents(int) override {
    try {
      device_.unregisterDescriptor(event_.get(), this);
      work_();
    } catch (...) {
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  }

 private:
  tcp::Device& device_;
  const std::function<void()> work_;
  const UniqueFd event_;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
};

std::shared_ptr<tcp::Device> device_on_loopback() {
  std::string why;
  for (const char* address : {"127.0.0.1", "::1"}) {
    try {
      return std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(tcp::attr(address)));
    } catch (const std::exception& error) {
      why += fmt::format("{}{}", why.empty() ? "" : "; ", error.what());
    }
  }
  const UniqueFd any(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TUTTI_CHECK_ENV(any, "gloo cannot listen: {}; raise 'ulimit -n' where descriptors are lacking ({})",
                  detail::errno_text(errno), why);
  throw EnvironmentError(
      fmt::format("gloo needs the loopback interface of this host or container, which is down or has no address; "
                  "bring it up: ip link set lo up ({})",
                  why));
}

// A socket by its number in the system. Several may have one address, such as a listener, what it has accepted, and a
// socket of UDP at a port of the same number; several descriptors may have one socket.
struct OpenSocket {
  int fd = -1;
  ino_t inode = 0;
};

// The sockets of TCP in this process whose near end is `address`, once for each of their descriptors.
std::vector<OpenSocket> sockets_at(const std::string& address) {
  std::vector<OpenSocket> sockets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    struct stat status;
    if (near_end(fd) == address && fstat(fd, &status) == 0) sockets.push_back({.fd = fd, .inode = status.st_ino});
  }
  TUTTI_CHECK_ENV(!error,
                  "the descriptors of this process cannot be listed: /proc/self/fd: {}; raise 'ulimit -n' where "
                  "descriptors are lacking",
                  error.message());
  return sockets;
}

bool listens(int fd) {
  int answer = 0;
  socklen_t size = sizeof answer;
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &answer, &size) == 0 && answer != 0;
}

// The one that listens, of which there is one at an address: gloo does not share its ports. -1: none.
int listener_of(const std::vector<OpenSocket>& sockets) {
  const auto found = std::ranges::find_if(sockets, [](const OpenSocket& s) { return listens(s.fd); });
  return found == sockets.end() ? -1 : found->fd;
}

// The one that was not there before. -1: none.
int new_one_of(const std::vector<OpenSocket>& sockets, const std::vector<OpenSocket>& before) {
  const auto found = std::ranges::find_if(sockets, [&](const OpenSocket& s) {
    return std::ranges::find(before, s.inode, &OpenSocket::inode) == before.end();
  });
  return found == sockets.end() ? -1 : found->fd;
}

// accept() would wait for ever where nobody comes. Where strangers have filled the queue, this process itself is not in
// it.
void wait_for_caller(int listener, const std::string& address) {
  TUTTI_CHECK_ENV(listener >= 0, "its descriptor at {} is not found in /proc/self/fd", address);
  pollfd waited{.fd = listener, .events = POLLIN, .revents = 0};
  int ready = 0;
  while ((ready = poll(&waited, 1, kConnectMilliseconds)) < 0 && errno == EINTR) {
  }
  TUTTI_CHECK_ENV(ready > 0, "this process cannot connect to itself at {} within {} ms", address, kConnectMilliseconds);
}

void reset(UniqueFd fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// Makes `fd`, which `handler` reads, the descriptor of `socket`.
void replace(tcp::Device& device, tcp::Handler* handler, int fd, const UniqueFd& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  device.unregisterDescriptor(fd, handler);
  const bool is_replaced = dup3(socket.get(), fd, O_CLOEXEC) == fd;
  const int error = errno;
  device.registerDescriptor(fd, EPOLLIN, handler);
  TUTTI_CHECK_ENV(is_replaced, "its descriptor {} cannot be replaced: {}", fd, detail::errno_text(error));
}

PairSocket hand_over(Context& context, tcp::Device& device, int p, const UniqueFd& socket,
                     const ConnectToPair& connect) {
  for (int tries = 1;; ++tries) {
    auto& pair = context.createPair(p);
    auto* handler = dynamic_cast<tcp::Handler*>(pair.get());
    TUTTI_CHECK_ENV(handler != nullptr, "its pairs are not those that the build has checked");
    const sockaddr_storage address = tcp::Address(pair->address().bytes()).getSockaddr();
    const std::string name = to_text(address);
    UniqueFd own = connect(address);
    // While a pair listens, nothing can be bound to its address, so that what is new there afterwards is what it has
    // accepted.
    const std::vector<OpenSocket> before = sockets_at(name);
    wait_for_caller(listener_of(before), name);
    std::string error;
    try {
      handler->handleEvents(EPOLLIN);  // accepts
    } catch (const std::exception& e) {
      error = e.what();
    }
    // What it has accepted gives its port back when `own` is reset, and a pair of another group may listen there then.
    const int fd = new_one_of(sockets_at(name), before);
    reset(std::move(own));
    TUTTI_CHECK_ENV(fd >= 0, "its descriptor for rank {} is not found in /proc/self/fd{}{}", p,
                    error.empty() ? "" : ": ", error);
    if (error.empty()) {
      replace(device, handler, fd, socket);
      return {.fd = fd, .ends = ends_of(fd)};
    }
    // A pair that has given up in the middle of accepting can only be destroyed when what it has accepted is
    // registered.
    device.registerDescriptor(fd, 0, handler);
    TUTTI_CHECK_ENV(tries < kMostTries, "its connection of this process with itself failed {} times: {}", tries, error);
  }
}

}  // namespace

UniqueFd connect_to_pair(const sockaddr_storage& address) {
  UniqueFd fd = begin_connecting(
      {.address = address,
       .size = address.ss_family == AF_INET ? socklen_t{sizeof(sockaddr_in)} : socklen_t{sizeof(sockaddr_in6)}});
  TUTTI_CHECK_ENV(fd, "this process cannot connect to itself at {}: {}", to_text(address), detail::errno_text(errno));
  return fd;
}

GlooMesh hand_over_to_gloo(int rank, std::vector<UniqueFd> sockets, const ConnectToPair& connect) {
  const int size = static_cast<int>(sockets.size());
  try {
    const auto device = device_on_loopback();
    GlooMesh mesh{.device = device,
                  .context = device->createContext(rank, size),
                  .sockets = std::vector<PairSocket>(sockets.size())};
    mesh.context->setTimeout(kNoTimeout);
    InThreadOfGloo(*device, [&] {
      for (int p = 0; p < size; ++p) {
        const auto at = static_cast<size_t>(p);
        if (p != rank) mesh.sockets[at] = hand_over(*mesh.context, *device, p, sockets[at], connect);
      }
    });
    return mesh;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw EnvironmentError(error.what());
  }
}

}  // namespace tutti::comm

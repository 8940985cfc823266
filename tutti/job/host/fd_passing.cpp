#include "tutti/job/host/fd_passing.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <span>

#include "tutti/core/hash.h"
#include "tutti/job/deadline.h"
#include "tutti/job/errors.h"
#include "tutti/job/host/fd_channel.h"

namespace tutti::comm {
namespace {

using std::chrono::steady_clock;

constexpr size_t kFdsPerPacket = 200;
// The hub's word on who is missing is better than what the others can say themselves: they give it this long.
constexpr std::chrono::milliseconds kGrace{250};

struct Call {
  Store& store;
  std::string key;
  int rank;
  int size;
  int hub;
  FdDeadline deadline;
  bool gathers;  // everyone gives a descriptor, not the hub alone
  const std::function<void()>& look;
  std::function<std::string(int)> describe;  // may be empty

  std::string title() const { return fmt::format("passing descriptors ('{}', rank {} of {})", key, rank, size); }
  FdPacketHeader header(FdPacketKind kind) const {
    return {.kind = kind, .rank = rank, .size = size, .root = gathers ? -1 : hub};
  }
  // The next time to look around.
  std::chrono::milliseconds patience() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    return std::clamp(left, std::chrono::milliseconds(0), kLookAround);
  }
  bool is_late() const { return steady_clock::now() >= deadline; }
  std::string name_of(int r) const { return describe ? describe(r) : fmt::format("rank {}", r); }
  void look_around() const {
    store.look();
    if (look) look();
  }
};

UniqueFd duplicate(const Call& call, int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  TUTTI_CHECK_ENV(copy, "{}: cannot duplicate descriptor {}: {}", call.title(), fd, detail::errno_text(errno));
  return copy;
}

constexpr std::string_view kNamePrefix = "tutti-";

// Names the job (by its store), the key, and a number that nobody can guess: two jobs, or two groups of one, never
// meet. The others read the name in the store, because they may know the store under another address.
std::string new_socket_name(const Call& call) {
  return fmt::format("{}{:016x}-{:016x}-{}", kNamePrefix, hash64(call.store.address()), hash64(call.key),
                     random_token());
}

// "ranks 1, 3", or what each is called.
std::string list(const Call& call, const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", call.describe ? call.describe(r) : fmt::format("{}", r));
  return call.describe ? text : "ranks " + text;
}

struct Guest {
  UniqueFd connection;
  pid_t pid = 0;
  int rank = -1;  // -1: has not said hello
  UniqueFd given;
};

// The rank that listens.
class Hub {
 public:
  explicit Hub(const Call& call) : call_(call), name_(new_socket_name(call)) {
    listener_ = listen_at(name_, call.size + 16);
    call_.store.set(call_.key, fmt::format("{} {}", name_, getpid()));
  }
  // Also when something failed: the next call under this key must not find this one's record.
  ~Hub() { forget(); }

  // Until all other ranks said hello.
  void collect() {
    while (missing() > 0) {
      std::vector<pollfd> waited{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const Guest& guest : guests_)
        waited.push_back({.fd = guest.connection.get(), .events = POLLIN, .revents = 0});
      const int ready = poll(waited.data(), waited.size(), static_cast<int>(call_.patience().count()));
      if (ready <= 0) {
        call_.look_around();
        if (call_.is_late()) throw_missing();
      }
      for (size_t i = guests_.size(); i-- > 0;) {
        if (waited[i + 1].revents != 0) hear(i);
      }
      if (waited[0].revents != 0) accept_all();
    }
  }

  void forget() noexcept {
    if (!listener_) return;
    listener_ = UniqueFd();
    try {
      call_.store.delete_key(call_.key);
    } catch (const Error&) {
      // The store is gone, and the record with it.
    }
  }

  Guest& guest(int rank) {
    return *std::find_if(guests_.begin(), guests_.end(), [&](const Guest& g) { return g.rank == rank; });
  }

  void send_to_all(std::span<const int> fds) {
    for (Guest& guest : guests_) {
      for (size_t at = 0; at < fds.size(); at += kFdsPerPacket) {
        const int error = send_packet(guest.connection.get(), call_.header(FdPacketKind::descriptors), "",
                                      fds.subspan(at, std::min(kFdsPerPacket, fds.size() - at)), call_.deadline);
        if (error != 0) throw_gone(guest, detail::errno_text(error));
      }
    }
  }

  void tell(FdPacketKind kind, std::string_view reason) noexcept {
    for (Guest& guest : guests_) {
      send_packet(guest.connection.get(), call_.header(kind), reason, {}, steady_clock::now());
    }
  }

 private:
  int missing() const {
    return call_.size - 1 -
           static_cast<int>(std::count_if(guests_.begin(), guests_.end(), [](const Guest& g) { return g.rank >= 0; }));
  }

  void accept_all() {
    while (true) {
      UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connection) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        TUTTI_CHECK_ENV(errno == EAGAIN, "{}: cannot accept a connection: {}", call_.title(),
                        detail::errno_text(errno));
        return;
      }
      const PeerCredentials credentials = credentials_of(connection.get());
      if (credentials.uid != geteuid()) {
        ++strangers_;
        continue;
      }
      guests_.push_back({.connection = std::move(connection), .pid = credentials.pid, .rank = -1, .given = UniqueFd()});
      hear(guests_.size() - 1);  // its hello is usually there already
    }
  }

  void hear(size_t index) {
    Guest& guest = guests_[index];
    FdPacket packet;
    std::string problem;
    switch (read_packet(guest.connection.get(), packet, problem)) {
      case FdReadStatus::nothing_yet:
        return;
      case FdReadStatus::closed:
        if (guest.rank >= 0) throw_gone(guest, "it died or gave up");
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(index));
        return;
      case FdReadStatus::malformed:
        throw EnvironmentError(fmt::format("{}: process {} sent {}", call_.title(), guest.pid, problem));
      case FdReadStatus::packet:
        break;
    }
    const FdPacketHeader& hello = packet.header;
    TUTTI_CHECK_ENV(hello.kind == FdPacketKind::hello && packet.text == name_,
                    "{}: process {} sent something else than its name", call_.title(), guest.pid);
    TUTTI_CHECK(hello.size == call_.size && hello.root == call_.header(FdPacketKind::hello).root && hello.rank >= 0 &&
                    hello.rank < call_.size && hello.rank != call_.rank,
                "{}: process {} calls itself rank {} of {} with root {}, this is rank {} of {} with root {}; all ranks "
                "must make the same call",
                call_.title(), guest.pid, hello.rank, hello.size, hello.root, call_.rank, call_.size,
                call_.header(FdPacketKind::hello).root);
    for (const Guest& other : guests_) {
      TUTTI_CHECK(other.rank != hello.rank, "{}: processes {} and {} both call themselves rank {}", call_.title(),
                  other.pid, guest.pid, hello.rank);
    }
    TUTTI_CHECK_ENV(packet.fds.size() == (call_.gathers ? 1u : 0u), "{}: rank {} (pid {}) gave {} descriptors",
                    call_.title(), hello.rank, guest.pid, packet.fds.size());
    guest.rank = hello.rank;
    if (call_.gathers) guest.given = std::move(packet.fds[0]);
  }

  [[noreturn]] void throw_gone(const Guest& guest, const std::string& how) const {
    throw PeerError(fmt::format("{}: rank {} (pid {}) is gone: {}", call_.title(), guest.rank, guest.pid, how));
  }

  [[noreturn]] void throw_missing() const {
    std::vector<int> late;
    for (int r = 0; r < call_.size; ++r) {
      const bool came =
          r == call_.rank || std::any_of(guests_.begin(), guests_.end(), [&](const Guest& g) { return g.rank == r; });
      if (!came) late.push_back(r);
    }
    throw TimeoutError(
        fmt::format("{}: {} did not come before the deadline{}", call_.title(), list(call_, late),
                    strangers_ == 0 ? "" : fmt::format("; {} processes of other users were sent away", strangers_)));
  }

  Call call_;
  std::string name_;
  UniqueFd listener_;
  std::vector<Guest> guests_;
  int strangers_ = 0;
};

struct HubRecord {
  std::string name;  // of the socket
  std::string pid;
};

HubRecord find_hub(const Call& call) {
  std::string text;
  while (text.empty()) {
    try {
      text = call.store.get(call.key, call.patience());
    } catch (const StoreTimeout&) {
      call.look_around();
      if (call.is_late()) {
        throw TimeoutError(
            fmt::format("{}: {} did not come before the deadline", call.title(), call.name_of(call.hub)));
      }
    }
  }
  const size_t space = text.find(' ');
  TUTTI_CHECK_ENV(space != std::string::npos && space < 108 && text.starts_with(kNamePrefix),
                  "{}: the store holds '{}' under this key, which rank {} did not write", call.title(),
                  text.substr(0, 80), call.hub);
  return {.name = text.substr(0, space), .pid = text.substr(space + 1)};
}

// The others: say who they are, give `given`, and take `expected` descriptors.
std::vector<UniqueFd> visit(const Call& call, std::span<const int> given, size_t expected) {
  const HubRecord hub = find_hub(call);
  const std::string name = fmt::format("rank {} (pid {})", call.hub, hub.pid);
  UniqueFd connection;
  const int error = connect_to(hub.name, call.deadline, connection);
  if (error == ECONNREFUSED) {
    throw PeerError(
        fmt::format("{}: nobody listens for {} any more: it died or gave up, or runs on another host or "
                    "in another network namespace",
                    call.title(), name));
  }
  TUTTI_CHECK_ENV(error == 0, "{}: cannot connect to {}: {}", call.title(), name, detail::errno_text(error));
  const PeerCredentials credentials = credentials_of(connection.get());
  TUTTI_CHECK_ENV(credentials.uid == geteuid(), "{}: process {} of user {} answers for {}; this is user {}",
                  call.title(), credentials.pid, credentials.uid, name, geteuid());
  const int sent = send_packet(connection.get(), call.header(FdPacketKind::hello), hub.name, given, call.deadline);
  if (sent != 0 && sent != EPIPE) {
    throw PeerError(
        fmt::format("{}: {} does not take what it is sent: {}", call.title(), name, detail::errno_text(sent)));
  }
  std::vector<UniqueFd> result;
  while (result.size() < expected) {
    if (!wait_readable(connection.get(), call.deadline + kGrace)) {
      throw TimeoutError(fmt::format("{}: {} did not answer before the deadline", call.title(), name));
    }
    FdPacket packet;
    std::string problem;
    const FdReadStatus status = read_packet(connection.get(), packet, problem);
    if (status == FdReadStatus::nothing_yet) continue;
    if (status == FdReadStatus::closed) {
      throw PeerError(fmt::format("{}: {} is gone: it died or gave up", call.title(), name));
    }
    TUTTI_CHECK_ENV(status == FdReadStatus::packet, "{}: {} sent {}", call.title(), name, problem);
    if (packet.header.kind == FdPacketKind::misuse) throw UsageError(packet.text);
    if (packet.header.kind == FdPacketKind::failure) throw PeerError(packet.text);
    if (packet.header.kind == FdPacketKind::timeout) throw TimeoutError(packet.text);
    for (UniqueFd& fd : packet.fds) result.push_back(std::move(fd));
  }
  TUTTI_CHECK_ENV(result.size() == expected, "{}: {} sent {} descriptors; expected {}", call.title(), name,
                  result.size(), expected);
  return result;
}

void check_group(const Call& call) {
  TUTTI_CHECK(call.size >= 1 && call.rank >= 0 && call.rank < call.size && call.hub >= 0 && call.hub < call.size,
              "{}: with root {}; ranks must be 0 to {}", call.title(), call.hub, call.size - 1);
}

// Runs the hub's part; whoever came hears why it failed.
void with_hub(const Call& call, const std::function<void(Hub&)>& part) {
  Hub hub(call);
  try {
    part(hub);
  } catch (const UsageError& error) {
    hub.tell(FdPacketKind::misuse, error.what());
    throw;
  } catch (const TimeoutError& error) {
    hub.tell(FdPacketKind::timeout, error.what());
    throw;
  } catch (const Error& error) {
    hub.tell(FdPacketKind::failure, error.what());
    throw;
  }
}

}  // namespace

UniqueFd broadcast_fd(Store& store, const std::string& key, int rank, int size, int root, int fd, FdDeadline deadline,
                      const std::function<void()>& look_around, const std::function<std::string(int)>& describe_rank) {
  const Call call{.store = store,
                  .key = key,
                  .rank = rank,
                  .size = size,
                  .hub = root,
                  .deadline = deadline,
                  .gathers = false,
                  .look = look_around,
                  .describe = describe_rank};
  check_group(call);
  if (rank != root) return std::move(visit(call, {}, 1)[0]);
  UniqueFd own = duplicate(call, fd);
  if (size == 1) return own;
  with_hub(call, [&](Hub& hub) {
    hub.collect();
    hub.forget();  // before anybody returns: the key may be used again from then on
    hub.send_to_all(std::array{own.get()});
  });
  return own;
}

std::vector<UniqueFd> all_gather_fds(Store& store, const std::string& key, int rank, int size, int fd,
                                     FdDeadline deadline, const std::function<void()>& look_around) {
  const Call call{.store = store,
                  .key = key,
                  .rank = rank,
                  .size = size,
                  .hub = 0,
                  .deadline = deadline,
                  .gathers = true,
                  .look = look_around,
                  .describe = {}};
  check_group(call);
  if (rank != 0) return visit(call, std::array{fd}, static_cast<size_t>(size));
  std::vector<UniqueFd> result;
  result.push_back(duplicate(call, fd));
  if (size == 1) return result;
  with_hub(call, [&](Hub& hub) {
    hub.collect();
    hub.forget();
    for (int r = 1; r < size; ++r) result.push_back(std::move(hub.guest(r).given));
    std::vector<int> fds;
    for (const UniqueFd& each : result) fds.push_back(each.get());
    hub.send_to_all(fds);
  });
  return result;
}

}  // namespace tutti::comm

#include "tutti/comm/gloo/proven_mesh.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tutti/core/error.h"
#include "tutti/job/store/descriptor_reserve.h"
#include "tutti/job/store/socket.h"

namespace tutti::comm {
namespace {

using std::chrono::steady_clock;

// Those who have proved nothing yet. Of more, the oldest leaves: a rank proves the key within two round trips, and
// tries again if it was too slow.
constexpr size_t kMostNewcomers = 1024;
constexpr std::chrono::seconds kGreetingTime{20};
constexpr std::chrono::milliseconds kLongestPause{250};
constexpr std::chrono::milliseconds kPauseOfListening{100};

bool is_dropped(int error) { return error == 0 || error == ECONNRESET || error == EPIPE || error == ECONNABORTED; }

std::string why_not_reached(int error, const TcpEndpoint& endpoint) {
  const bool is_down = error == ENETUNREACH && is_loopback(endpoint),
             has_no_descriptor = error == EMFILE || error == ENFILE;
  return detail::errno_text(error) +
         (is_down ? ", because the loopback interface of this host or container is down; bring it up: ip link set lo up"
          : has_no_descriptor ? ", because this process has no descriptor left: raise 'ulimit -n'"
                              : "");
}

}  // namespace

ProvenMesh::ProvenMesh(MeshPlan plan)
    : plan_(std::move(plan)), secret_(make_job_key()), proven_(static_cast<size_t>(plan_.size)) {
  if (plan_.rank + 1 == plan_.size) return;  // nobody connects to the last rank
  listener_ = listen_at(tcp_endpoint(plan_.address, 0));
  TUTTI_CHECK_ENV(listener_, "cannot listen on {}: {}", plan_.address, detail::errno_text(errno));
  const int port = local_port(listener_.get());
  own_address_ = host_and_port(plan_.address, port);
  card_ = fmt::format("{} {} {}", plan_.address, port, secret_);
}

// Keys are different for each connection, so that no rank's proof serves another one or another group.
std::string ProvenMesh::key_of(int from, int to, const std::string& secret) const {
  return fmt::format("gloo {} {} {} {} {}", from, to, secret, plan_.group, plan_.job_key);
}

void ProvenMesh::connect(const std::vector<std::string>& cards) {
  for (int p = 0; p < plan_.rank; ++p) {
    const std::string& card = cards[static_cast<size_t>(p)];
    const size_t port = card.find(' '), secret = card.find(' ', port + 1);
    Callee callee{.rank = p};
    if (port != std::string::npos && secret != std::string::npos) {
      callee.endpoint = tcp_endpoint(card.substr(0, port), std::atoi(card.c_str() + port));
      callee.secret = card.substr(secret + 1);
    }
    TUTTI_CHECK_ENV(callee.endpoint.size > 0 && !callee.secret.empty(), "what the store has for rank {} is no address",
                    p);
    callees_.push_back(std::move(callee));
  }
}

bool ProvenMesh::serve(std::chrono::milliseconds limit) {
  const Moment until = steady_clock::now() + limit;
  while (true) {
    if (missing() < 0) {
      listener_ = UniqueFd();
      newcomers_.clear();
      return true;
    }
    if (failure_) return false;
    poll_once(until);
    if (steady_clock::now() >= until) return missing() < 0 && serve(std::chrono::milliseconds(0));
  }
}

void ProvenMesh::poll_once(Moment until) {
  const Moment now = steady_clock::now();
  if (listen_again_ && *listen_again_ <= now) listen_again_.reset();
  Moment wake = until;
  std::vector<pollfd> waited;
  const bool listens = listener_ && !listen_again_;
  if (listens) waited.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  if (listen_again_) wake = std::min(wake, *listen_again_);
  for (Callee& callee : callees_) {
    if (!callee.greeting && callee.next_try <= now) try_callee(callee, now);
    if (callee.greeting) {
      waited.push_back({.fd = callee.greeting->fd(), .events = callee.greeting->events(), .revents = 0});
    } else {
      wake = std::min(wake, callee.next_try);
    }
  }
  if (failure_) return;
  if (!newcomers_.empty()) wake = std::min(wake, newcomers_.front().deadline);
  for (const Newcomer& newcomer : newcomers_)
    waited.push_back({.fd = newcomer.greeting.fd(), .events = newcomer.greeting.events(), .revents = 0});

  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - steady_clock::now());
  const int ready = poll(waited.data(), waited.size(), static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000)));
  if (ready < 0) return;  // a signal
  size_t i = listens ? 1 : 0;
  const bool has_newcomers = listens && waited[0].revents != 0;
  for (Callee& callee : callees_) {
    if (callee.greeting && waited[i++].revents != 0) advance_callee(callee);
  }
  std::erase_if(callees_,
                [this](const Callee& callee) { return static_cast<bool>(proven_[static_cast<size_t>(callee.rank)]); });
  std::vector<bool> is_ready;
  for (; i < waited.size(); ++i) is_ready.push_back(waited[i].revents != 0);
  advance_newcomers(is_ready);
  if (has_newcomers) accept_newcomers();
}

// ---- those to whom this rank connects -------------------------------------------------------------------------------

void ProvenMesh::try_callee(Callee& callee, Moment now) {
  callee.next_try = now + callee.pause;
  callee.pause = std::min(2 * callee.pause, kLongestPause);
  UniqueFd fd = begin_connecting(callee.endpoint);
  if (!fd) return fail(callee, why_not_reached(errno, callee.endpoint));
  callee.greeting = PeerGreeting::connecting(std::move(fd), plan_.rank, key_of(plan_.rank, callee.rank, callee.secret));
}

void ProvenMesh::advance_callee(Callee& callee) {
  PeerGreeting& greeting = *callee.greeting;
  switch (greeting.advance()) {
    case PeerGreeting::State::kUnderWay:
      return;
    case PeerGreeting::State::kProven:
      proven_[static_cast<size_t>(callee.rank)] = greeting.take();
      return;
    case PeerGreeting::State::kOtherKey:
      return fail(callee, "it was refused", true);
    case PeerGreeting::State::kStranger:
      return fail(callee, "whoever answers there does not know the job key");
    case PeerGreeting::State::kClosed:
      break;
  }
  // One that drops connections has too many of them, and gets to this one later. What else happens means that nobody is
  // there.
  if (!is_dropped(greeting.error())) return fail(callee, why_not_reached(greeting.error(), callee.endpoint));
  callee.last_error =
      greeting.error() == 0 ? "it was closed before it was proven" : detail::errno_text(greeting.error());
  callee.greeting.reset();
}

void ProvenMesh::fail(const Callee& callee, const std::string& why, bool has_other_key) {
  failure_ = MeshFailure{callee.rank, has_other_key, why};
}

// ---- those who connect to this rank ---------------------------------------------------------------------------------

size_t ProvenMesh::callers_left() const {
  const auto callers = proven_.begin() + plan_.rank + 1;
  return static_cast<size_t>(std::count_if(callers, proven_.end(), [](const UniqueFd& fd) { return !fd; }));
}

void ProvenMesh::accept_newcomers() {
  // Those who are connected get their turn between portions of newcomers.
  for (int portion = 0; portion < 64; ++portion) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    UniqueFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool has_none = !fd && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
    const bool is_short = has_none || (fd && is_short_of_descriptors(fd.get()));
    if (!fd && !has_none) return;
    // The ranks that are to come need theirs in any case; more than those are strangers' connections.
    const bool has_room = !is_short || allow_more_descriptors() || (fd && newcomers_.size() < callers_left());
    if (newcomers_.size() >= kMostNewcomers || !has_room) {
      if (newcomers_.empty()) {
        lacks_descriptors_ = true;
        listen_again_ = steady_clock::now() + kPauseOfListening;
        return;
      }
      drop(newcomers_.front(), "it was the slowest of too many");
      newcomers_.pop_front();
      if (fd) fd = with_lowest_number(std::move(fd));
    }
    if (!fd) continue;
    const auto key = [this](int rank) {
      return rank > plan_.rank && rank < plan_.size ? key_of(rank, plan_.rank, secret_) : "";
    };
    newcomers_.push_back(
        {PeerGreeting::accepting(std::move(fd), key), to_text(from), steady_clock::now() + kGreetingTime});
  }
}

void ProvenMesh::advance_newcomers(const std::vector<bool>& is_ready) {
  const Moment now = steady_clock::now();
  std::deque<Newcomer> stay;
  for (size_t i = 0; i < newcomers_.size(); ++i) {
    Newcomer& newcomer = newcomers_[i];
    if (is_ready[i] && settle(newcomer)) continue;
    if (newcomer.deadline <= now) {
      drop(newcomer, "it did not prove in time that it knows the job key");
    } else {
      stay.push_back(std::move(newcomer));
    }
  }
  newcomers_ = std::move(stay);
}

// True when it stays no longer among the newcomers.
bool ProvenMesh::settle(Newcomer& newcomer) {
  PeerGreeting& greeting = newcomer.greeting;
  switch (greeting.advance()) {
    case PeerGreeting::State::kUnderWay:
      return false;
    // A rank that comes again has not seen that its earlier connection was proven.
    case PeerGreeting::State::kProven:
      proven_[static_cast<size_t>(greeting.rank())] = greeting.take();
      return true;
    case PeerGreeting::State::kOtherKey:
      drop(newcomer, "it has another job key");
      return true;
    case PeerGreeting::State::kStranger:
      drop(newcomer, "it is no rank of the group");
      return true;
    case PeerGreeting::State::kClosed:
      drop(newcomer, "it left before it had proved that it knows the job key");
      return true;
  }
  return true;
}

void ProvenMesh::drop(const Newcomer& newcomer, const char* why) {
  // Nothing of strangers lingers in the system; a rank with another key is left the time to read why.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  if (!newcomer.greeting.has_refused())
    setsockopt(newcomer.greeting.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ++dropped_;
  const int rank = newcomer.greeting.rank();
  last_dropped_ =
      fmt::format("{}{}: {}", newcomer.from, rank < 0 ? "" : fmt::format(", which calls itself rank {}", rank), why);
}

// ---- for messages ---------------------------------------------------------------------------------------------------

int ProvenMesh::missing() const {
  for (int p = 0; p < plan_.size; ++p) {
    if (p != plan_.rank && !proven_[static_cast<size_t>(p)]) return p;
  }
  return -1;
}

std::string ProvenMesh::meeting_point(int rank) const {
  for (const Callee& callee : callees_) {
    if (callee.rank == rank) return to_text(callee.endpoint.address);
  }
  return own_address_;
}

std::string ProvenMesh::troubles() const {
  std::string text;
  for (const Callee& callee : callees_) {
    if (!callee.last_error.empty())
      text +=
          fmt::format("; the last connection to {} failed: {}", to_text(callee.endpoint.address), callee.last_error);
  }
  if (dropped_ > 0)
    text += fmt::format("; {} connections of strangers were dropped, the last one from {}", dropped_, last_dropped_);
  if (lacks_descriptors_) text += "; this process had no descriptor left for a connection: raise 'ulimit -n'";
  return text;
}

}  // namespace tutti::comm

#include "tutti/job/store/server_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tutti/job/store/descriptor_reserve.h"
#include "tutti/job/store/peer_uid.h"

namespace tutti::comm {
namespace {

constexpr uint64_t kListener = 0;
constexpr uint64_t kWake = 1;
constexpr uint64_t kFirstClient = 2;

// Clients that have not proved the key yet: enough for all ranks of a job that come at once. Of more, the oldest
// leaves: a client that knows the key proves it within a few round trips, and tries again if it was too slow.
constexpr size_t kMostGreeting = 4096;

void watch(int epoll, int operation, int fd, uint32_t events, uint64_t id) {
  epoll_event event{.events = events, .data = {.u64 = id}};
  TUTTI_CHECK_ENV(epoll_ctl(epoll, operation, fd, &event) == 0, "store server: cannot watch a connection: {}",
                  detail::errno_text(errno));
}

}  // namespace

TcpStoreServer::Loop::Loop(UniqueFd listener, std::string job_key)
    : listener_(std::move(listener)),
      job_key_(std::move(job_key)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      requests_([this](Client client, std::string frame) {
        const auto found = sessions_.find(client);
        if (found == sessions_.end()) return;
        touched_.insert(client);
        found->second.session.send(std::move(frame));
      }),
      next_client_(kFirstClient) {
  TUTTI_CHECK_ENV(epoll_ && wake_, "store server: no descriptors left for its event loop");
  watch(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListener);
  watch(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWake);
}

void TcpStoreServer::Loop::stop() {
  stopped_ = true;
  eventfd_write(wake_.get(), 1);
}

std::string TcpStoreServer::Loop::last_refusal() const {
  const std::lock_guard lock(refusal_mutex_);
  return last_refusal_;
}

void TcpStoreServer::Loop::run() {
  std::array<epoll_event, 256> events;
  while (!stopped_) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), next_timeout());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      const uint64_t id = event.data.u64;
      // Nothing that one client causes, lack of memory included, may end the thread that all others need.
      try {
        if (id == kListener) accept_clients();
        if (id >= kFirstClient) serve(id, event.events);
      } catch (const std::exception&) {
        close_client(id);
      }
    }
    try {
      expire();
    } catch (const std::exception&) {
      // The clients stay; what could not be sent to them now is found again when they move.
    }
  }
}

void TcpStoreServer::Loop::pause_listening(bool pause) {
  watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), pause ? 0U : uint32_t{EPOLLIN}, kListener);
  listen_again_.reset();
  if (pause) listen_again_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
}

void TcpStoreServer::Loop::accept_clients() {
  // Those who are connected get their turn between portions of newcomers.
  for (int portion = 0; portion < 64; ++portion) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    UniqueFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      if (is_short_of_descriptors(fd.get()) && !allow_more_descriptors()) {
        if (greeting_.empty()) {
          fd = UniqueFd();
          return pause_listening(true);
        }
        close_client(*greeting_.begin());
        fd = with_lowest_number(std::move(fd));
      }
      accept_one(std::move(fd), peer);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE && allow_more_descriptors()) continue;
    // Without room for another client, the queue of the system holds it until one leaves.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) return pause_listening(true);
  }
}

std::string TcpStoreServer::Loop::refusal_of_newcomer(int fd) const {
  if (!job_key_.empty()) return "";  // it proves that it knows the key
  const std::optional<uid_t> uid = uid_of_peer(fd);
  if (uid == geteuid()) return "";
  return fmt::format(
      "without a job key the store serves its own user only, {}, and the client belongs to {}; with a key in "
      "TUTTI_JOB_KEY it serves all who know it",
      geteuid(), uid ? fmt::format("user {}", *uid) : "nobody whom the system names");
}

void TcpStoreServer::Loop::note_refusal(const std::string& peer, const std::string& why) {
  const std::lock_guard lock(refusal_mutex_);
  last_refusal_ = fmt::format("{}: {}", peer, why);
  ++refused_;
}

void TcpStoreServer::Loop::accept_one(UniqueFd fd, const sockaddr_storage& peer) {
  tune_connection(fd.get());
  const Client client = next_client_++;
  Entry entry{.session = ServerSession(std::move(fd), to_text(peer), job_key_), .events = EPOLLIN | EPOLLRDHUP};
  watch(epoll_.get(), EPOLL_CTL_ADD, entry.session.fd(), entry.events, client);
  const auto added = sessions_.emplace(client, std::move(entry)).first;
  greeting_.insert(client);
  if (const std::string refusal = refusal_of_newcomer(added->second.session.fd()); !refusal.empty())
    added->second.session.refuse(refusal);
  settle(client);
  if (greeting_.size() > kMostGreeting) {
    const Client oldest = *greeting_.begin();
    note_refusal(sessions_.at(oldest).session.peer(),
                 fmt::format("it was the slowest of {} that greeted at once", kMostGreeting + 1));
    close_client(oldest);
  }
}

void TcpStoreServer::Loop::serve(Client client, uint32_t events) {
  const auto found = sessions_.find(client);
  if (found == sessions_.end()) return;
  Entry& entry = found->second;
  const bool is_waiting = requests_.is_waiting(client);
  const bool is_busy = is_waiting || entry.session.has_output();
  if ((events & (EPOLLHUP | EPOLLERR)) != 0 || ((events & EPOLLRDHUP) != 0 && is_busy)) return close_client(client);
  if ((events & EPOLLOUT) != 0) entry.session.flush();
  if ((events & EPOLLIN) != 0 && !is_busy) entry.session.receive();
  if ((events & EPOLLIN) != 0 && is_waiting) {
    // What it sends while it waits stays in the socket.
    entry.events = EPOLLRDHUP;
    watch(epoll_.get(), EPOLL_CTL_MOD, entry.session.fd(), entry.events, client);
  }
  touched_.insert(client);
  serve_touched();
}

void TcpStoreServer::Loop::serve_touched() {
  while (!touched_.empty()) {
    const Client client = *touched_.begin();
    touched_.erase(touched_.begin());
    const auto found = sessions_.find(client);
    if (found == sessions_.end()) continue;
    const auto handler = [&](uint8_t code, std::string_view body) { requests_.handle(client, code, body); };
    while (!requests_.is_waiting(client) && found->second.session.handle_next(handler)) {
    }
    settle(client);
  }
}

void TcpStoreServer::Loop::settle(Client client) {
  Entry& entry = sessions_.at(client);
  ServerSession& session = entry.session;
  if (const std::string refusal = session.take_refusal(); !refusal.empty()) {
    note_refusal(session.peer(), refusal);
  }
  if (session.state() == ServerSession::State::kGone) return close_client(client);
  if (session.state() == ServerSession::State::kReady && std::exchange(entry.is_greeting, false))
    greeting_.erase(client);
  const bool is_waiting = requests_.is_waiting(client);
  const std::optional<Moment> deadline = is_waiting ? std::nullopt : session.deadline();
  if (deadline != entry.deadline) {
    if (entry.deadline) deadlines_.erase({*entry.deadline, client});
    if (deadline) deadlines_.emplace(*deadline, client);
    entry.deadline = deadline;
  }
  // One that waits usually sends nothing meanwhile, so epoll is told only when it does.
  const uint32_t events = session.has_output() ? EPOLLOUT | EPOLLRDHUP : EPOLLIN | EPOLLRDHUP;
  if (!is_waiting && events != entry.events) {
    watch(epoll_.get(), EPOLL_CTL_MOD, session.fd(), events, client);
    entry.events = events;
  }
  clients_ = static_cast<int64_t>(sessions_.size());
}

void TcpStoreServer::Loop::close_client(Client client) {
  requests_.forget(client);
  const auto found = sessions_.find(client);
  if (found == sessions_.end()) return;
  if (found->second.deadline) deadlines_.erase({*found->second.deadline, client});
  greeting_.erase(client);
  sessions_.erase(found);
  clients_ = static_cast<int64_t>(sessions_.size());
}

void TcpStoreServer::Loop::expire() {
  const Moment now = std::chrono::steady_clock::now();
  requests_.expire(now);
  serve_touched();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Client client = deadlines_.begin()->second;
    ServerSession& session = sessions_.at(client).session;
    // One that reads nothing will not read the reason either.
    const bool can_be_told = session.state() != ServerSession::State::kEnding && !session.has_output();
    session.refuse("it stalled while greeting, sending or reading");
    settle(client);
    if (!can_be_told) close_client(client);
  }
  if (listen_again_ && *listen_again_ <= now) pause_listening(false);
}

int TcpStoreServer::Loop::next_timeout() const {
  std::optional<Moment> next = requests_.next_deadline();
  const auto consider = [&](Moment moment) { next = next ? std::min(*next, moment) : moment; };
  if (!deadlines_.empty()) consider(deadlines_.begin()->first);
  if (listen_again_) consider(*listen_again_);
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace tutti::comm

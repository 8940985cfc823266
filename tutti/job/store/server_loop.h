// The event loop of TcpStoreServer, run by its one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "tutti/job/store/server_session.h"
#include "tutti/job/store/store_requests.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {

// run() belongs to one thread; stop() and the counters may be called by any.
class TcpStoreServer::Loop {
 public:
  Loop(UniqueFd listener, std::string job_key);

  void run();
  void stop();

  int64_t num_clients() const { return clients_; }
  int64_t num_refused() const { return refused_; }
  std::string last_refusal() const;

 private:
  using Moment = std::chrono::steady_clock::time_point;
  using Client = StoreRequests::Client;
  struct Entry {
    ServerSession session;
    uint32_t events = 0;             // what epoll watches for it
    std::optional<Moment> deadline;  // as it stands in deadlines_
    bool is_greeting = true;         // as it is counted in greeting_
  };

  void accept_clients();
  // Whether a request may be served before its sender has proved anything: "", or why not.
  std::string refusal_of_newcomer(int fd) const;
  void note_refusal(const std::string& peer, const std::string& why);
  void accept_one(UniqueFd fd, const sockaddr_storage& peer);
  void pause_listening(bool pause);
  void serve(Client client, uint32_t events);
  // Goes on with those who got a reply while another client was served; they may have sent more meanwhile.
  void serve_touched();
  // Brings epoll, the deadlines and the counters in line with the session's state.
  void settle(Client client);
  void close_client(Client client);
  void expire();
  int next_timeout() const;

  UniqueFd listener_;
  std::string job_key_;
  UniqueFd epoll_;
  UniqueFd wake_;
  StoreRequests requests_;
  std::map<Client, Entry> sessions_;
  std::set<std::pair<Moment, Client>> deadlines_;
  std::set<Client> touched_;
  std::set<Client> greeting_;  // who has not proved yet that it may be here, oldest first
  Client next_client_;
  std::optional<Moment> listen_again_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int64_t> clients_ = 0;
  std::atomic<int64_t> refused_ = 0;
  mutable std::mutex refusal_mutex_;
  std::string last_refusal_;
};

}  // namespace tutti::comm

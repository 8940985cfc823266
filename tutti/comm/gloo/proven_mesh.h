// The connections of a group in the making: one to each other rank, on which both ends have proved that they know the
// job key.
//
// A rank listens for those of higher rank and connects to those of lower rank. Whoever else connects is dropped.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/gloo/peer_greeting.h"
#include "tutti/comm/gloo/tcp_endpoint.h"

namespace tutti::comm {

struct MeshPlan {
  std::string group;    // unique among all groups of the job at any time
  std::string job_key;  // "": the ranks know each other by the secrets in the store alone
  int rank = 0;
  int size = 1;
  std::string address;  // of this host, numeric
};

// Why the mesh cannot be made.
struct MeshFailure {
  int rank;  // to which this rank cannot connect
  bool has_other_key;
  std::string why;
};

// One thread at a time. Nothing blocks beyond the limit of serve().
class ProvenMesh {
 public:
  // Listens. EnvironmentError when that fails.
  explicit ProvenMesh(MeshPlan plan);
  ProvenMesh(const ProvenMesh&) = delete;
  ProvenMesh& operator=(const ProvenMesh&) = delete;

  // The text by which the other ranks connect to this one, for the store: its address and a secret.
  const std::string& card() const { return card_; }
  // cards[p] is that of rank p; connects. EnvironmentError when one is none.
  void connect(const std::vector<std::string>& cards);
  // Serves those who connect, for `limit` at most. True when all connections are proven; nobody listens any more then.
  bool serve(std::chrono::milliseconds limit);

  const std::optional<MeshFailure>& failure() const { return failure_; }
  // A rank whose connection is missing, -1: none.
  int missing() const;
  // "10.0.0.7:4711": where the missing connection of `rank` is to be made.
  std::string meeting_point(int rank) const;
  // The troubles met meanwhile, as the end of a sentence; "" when there were none.
  std::string troubles() const;
  // The proven connections, by rank; the own one is invalid.
  std::vector<UniqueFd> take() { return std::move(proven_); }

 private:
  using Moment = std::chrono::steady_clock::time_point;
  struct Callee {
    int rank = 0;
    TcpEndpoint endpoint;
    std::string secret;
    std::string last_error;
    Moment next_try{};
    std::chrono::milliseconds pause{5};
    std::optional<PeerGreeting> greeting;
  };
  struct Newcomer {
    PeerGreeting greeting;
    std::string from;
    Moment deadline;
  };

  std::string key_of(int from, int to, const std::string& secret) const;
  void try_callee(Callee& callee, Moment now);
  void advance_callee(Callee& callee);
  void fail(const Callee& callee, const std::string& why, bool has_other_key = false);
  size_t callers_left() const;  // ranks that are to connect and have not proven themselves yet
  void accept_newcomers();
  void advance_newcomers(const std::vector<bool>& is_ready);
  bool settle(Newcomer& newcomer);
  void drop(const Newcomer& newcomer, const char* why);
  void poll_once(Moment until);

  MeshPlan plan_;
  std::string secret_;
  std::string own_address_;  // with the port
  std::string card_;
  UniqueFd listener_;
  std::optional<Moment> listen_again_;  // while there are no descriptors for newcomers
  std::vector<Callee> callees_;
  std::deque<Newcomer> newcomers_;  // the oldest first
  std::vector<UniqueFd> proven_;
  std::optional<MeshFailure> failure_;
  bool lacks_descriptors_ = false;
  int64_t dropped_ = 0;
  std::string last_dropped_;
};

}  // namespace tutti::comm

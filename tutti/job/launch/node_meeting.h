// How the launchers of several nodes come together: who is there, in which order, and with how many ranks.
//
// 1. Node 0 serves a store at the endpoint; the others connect to it. With a job key each side proves that it knows it.
// 2. Each node leaves a record of itself under its node rank.
// 3. Node 0 waits until all are there, or enough and nobody new for a while; then it checks that the records agree,
//    starts a store for the ranks on a port of its own, and leaves the plan, which the others wait for.
// A restart does the same again under other keys, with a new store for the ranks. Nobody waits for ever: node 0 gives
// up after its `join`, and the others when nothing comes of it for `lost_after` more.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/job/store/store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {

class NodeMeeting {
 public:
  struct Node {
    int rank = 0;  // as given to its launcher
    int local_ranks = 0;
    std::string host;
    int pid = 0;  // of the launcher
  };
  struct Plan {
    LaunchedRank first;       // this launcher's first rank
    std::vector<Node> nodes;  // by rank
  };
  // False: give up.
  using KeepWaiting = std::function<bool()>;

  // UsageError when the endpoint needs a job key; EnvironmentError when node 0 cannot serve.
  explicit NodeMeeting(const LaunchOptions& options);
  ~NodeMeeting();

  // `expected`: how many nodes to wait for without being content with fewer. False when `keep_waiting` said so.
  // UsageError when the nodes contradict each other, EnvironmentError when they do not come or node 0 is gone.
  bool meet(int restart, int expected, const KeepWaiting& keep_waiting, Plan& plan);
  // A connection to the store of the launchers.
  std::shared_ptr<Store> connect();
  // Node 0 keeps the store until the others have read all they need, for some seconds at most.
  void leave(int others);

 private:
  bool join_store(const KeepWaiting& keep_waiting);
  // nullopt when `keep_waiting` said so.
  std::optional<std::string> await_plan(int restart, const KeepWaiting& keep_waiting);
  bool lead(int restart, int expected, const KeepWaiting& keep_waiting);
  std::string plan_of(int restart);
  std::string endpoint() const;

  const LaunchOptions& options_;
  const std::string key_;
  std::unique_ptr<TcpStoreServer> server_, ranks_server_;  // node 0
  std::shared_ptr<Store> store_;
  int port_ = 0;
};

// " of node 1 (hostb)"
std::string text_of(const NodeMeeting::Node& node);

}  // namespace tutti::comm

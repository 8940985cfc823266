#include "tutti/job/launch/node_meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <thread>

#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/printable.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSlice = std::chrono::milliseconds(200);  // so often signals are looked at
constexpr auto kCallTimeout = std::chrono::seconds(3);
constexpr auto kGoodbye = std::chrono::seconds(3);

std::string nnodes(const NodeOptions& nodes) {
  return nodes.min_nodes == nodes.max_nodes ? std::to_string(nodes.max_nodes)
                                            : fmt::format("{}:{}", nodes.min_nodes, nodes.max_nodes);
}

std::string node_key(int restart, int node) { return fmt::format("{}/node/{:06}", restart, node); }
std::string plan_key(int restart) { return fmt::format("{}/plan", restart); }

constexpr JsonLimits kLimits{.depth = 8, .nbytes = size_t{16} << 20, .values = size_t{1} << 20};

JsonDocument read_value(const std::string& text, const std::string& key) {
  return JsonDocument(text, {.name = fmt::format("store key '{}'", key)}, kLimits);
}

// What a node says of itself.
struct NodeRecord {
  NodeMeeting::Node node;
  std::string nnodes, run_id;
  int64_t max_restarts = 0;
  std::chrono::milliseconds join{};
};

NodeRecord record_of(const JsonValue& value) {
  const auto count = [&](const char* key) { return static_cast<int>(value.at(key).whole(0, INT_MAX)); };
  return {.node = {.rank = count("node"),
                   .local_ranks = count("local"),
                   .host = printable(value.at("host").string()),
                   .pid = count("pid")},
          .nnodes = value.at("nnodes").string(),
          .run_id = value.at("run-id").string(),
          .max_restarts = value.at("max-restarts").whole(),
          .join = std::chrono::milliseconds(value.at("join-ms").whole(0, kLongestWait.count()))};
}

std::string to_json(const NodeRecord& r) {
  return JsonWriter()
      .object()
      .member("host", r.node.host)
      .member("join-ms", r.join.count())
      .member("local", r.node.local_ranks)
      .member("max-restarts", r.max_restarts)
      .member("nnodes", r.nnodes)
      .member("node", r.node.rank)
      .member("pid", r.node.pid)
      .member("run-id", r.run_id)
      .end()
      .take();
}

// A plan that ends the meeting: the reason, under the name "wrong" or "missing".
std::string refusal(const char* kind, const std::string& reason) {
  return JsonWriter().object().member(kind, reason).end().take();
}

std::string describe(const NodeRecord& r) {
  return fmt::format("node {} ({}, launcher pid {})", r.node.rank, r.node.host, r.node.pid);
}

// What all nodes must be given alike; "" when they are.
std::string contradiction(const NodeRecord& a, const NodeRecord& b) {
  const auto differ = [&](const char* flag, const auto& one, const auto& other) {
    return one == other ? ""
                        : fmt::format("--{} is {} on {} but {} on {}; give all nodes the same", flag, one, describe(a),
                                      other, describe(b));
  };
  for (const std::string& wrong : {differ("nnodes", json_quoted(a.nnodes), json_quoted(b.nnodes)),
                                   differ("max-restarts", a.max_restarts, b.max_restarts),
                                   differ("run-id", json_quoted(a.run_id), json_quoted(b.run_id))}) {
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// "0, 2"
std::string list(const std::vector<int>& nodes) { return fmt::format("{}", fmt::join(nodes, ", ")); }

}  // namespace

std::string text_of(const NodeMeeting::Node& node) { return fmt::format(" of node {} ({})", node.rank, node.host); }

NodeMeeting::NodeMeeting(const LaunchOptions& options)
    : options_(options), key_(read_job_key()), port_(options.nodes.port) {
  const NodeOptions& nodes = options_.nodes;
  TUTTI_CHECK(
      !key_.empty() || !loopback_of(nodes.host).empty(),
      "nodes that meet at {} need a job key: set TUTTI_JOB_KEY, or TUTTI_JOB_KEY_FILE, to the same secret on all nodes "
      "('openssl rand -hex 32' makes one). Without a key only nodes of one host can meet, at 127.0.0.1",
      endpoint());
  if (nodes.node_rank != 0) return;
  server_ = std::make_unique<TcpStoreServer>(
      TcpStoreServerOptions{.bind_address = key_.empty() ? nodes.host : "", .port = nodes.port, .job_key = key_});
  port_ = server_->port();
}

NodeMeeting::~NodeMeeting() = default;

std::string NodeMeeting::endpoint() const { return host_and_port(options_.nodes.host, port_); }

std::shared_ptr<Store> NodeMeeting::connect() { return store_->clone(); }

bool NodeMeeting::join_store(const KeepWaiting& keep_waiting) {
  const auto end = deadline_after(options_.nodes.join);
  // Node 0 reaches itself at every address it serves.
  const std::string host = server_ && !key_.empty() ? "127.0.0.1" : options_.nodes.host;
  while (keep_waiting()) {
    try {
      store_ =
          std::make_shared<TcpStore>(TcpStoreOptions{.host = host, .port = port_, .timeout = kSlice, .job_key = key_});
      store_->set_timeout(kCallTimeout);
      return true;
    } catch (const StoreTimeout& error) {
      TUTTI_CHECK_ENV(Clock::now() < end, "node {}: the launcher of node 0 does not answer at {} within {} s: {}",
                      options_.nodes.node_rank, endpoint(), options_.nodes.join.count() / 1000, error.what());
    }
  }
  return false;
}

bool NodeMeeting::meet(int restart, int expected, const KeepWaiting& keep_waiting, Plan& plan) {
  if (!store_ && !join_store(keep_waiting)) return false;
  const NodeOptions& nodes = options_.nodes;
  const NodeRecord mine{
      .node = {.rank = nodes.node_rank, .local_ranks = options_.ranks, .host = host_name(), .pid = getpid()},
      .nnodes = nnodes(nodes),
      .run_id = options_.run_id,
      .max_restarts = options_.max_restarts,
      .join = std::clamp(nodes.join, std::chrono::milliseconds(0), kLongestWait)};
  const std::string key = node_key(restart, nodes.node_rank), value = to_json(mine);
  if (const std::string there = store_->compare_set(key, "", value); there != value) {
    throw UsageError(fmt::format("--node-rank {} belongs to {} already; give each node a rank of its own",
                                 nodes.node_rank, describe(record_of(read_value(there, key).top()))));
  }
  if (server_ && !lead(restart, expected, keep_waiting)) return false;
  const std::optional<std::string> text = await_plan(restart, keep_waiting);
  if (!text) return false;
  const JsonDocument document = read_value(*text, plan_key(restart));
  const JsonValue told = document.top();
  if (const auto wrong = told.find("wrong")) throw UsageError(printable(wrong->string()));
  if (const auto missing = told.find("missing")) throw EnvironmentError(printable(missing->string()));
  plan.nodes.clear();
  bool am_there = false;
  int ranks = 0;
  for (const auto& [none, record] : told.at("nodes")) {
    const Node node = record_of(record).node;
    if (node.rank == nodes.node_rank) {
      am_there = true;
      plan.first.rank = ranks;
      plan.first.node = static_cast<int>(plan.nodes.size());
    }
    ranks += node.local_ranks;
    plan.nodes.push_back(node);
  }
  TUTTI_CHECK_ENV(
      am_there,
      "node {} came when the others had started already; start it earlier, or give --nnodes a higher least number",
      nodes.node_rank);
  plan.first.world_size = ranks;
  plan.first.local_world_size = options_.ranks;
  plan.first.nodes = static_cast<int>(plan.nodes.size());
  plan.first.store_host = nodes.host;
  plan.first.store_port = static_cast<int>(told.at("port").whole(1, 65535));
  plan.first.master_port = static_cast<int>(told.at("master-port").whole(1, 65535));
  plan.first.job_key = key_;
  plan.first.restart = restart;
  plan.first.max_restarts = options_.max_restarts;
  plan.first.run_id = told.at("run-id").string();
  return true;
}

// Node 0 tells when the nodes have not come within its time, so that the others wait for as long, and then for a sign
// of life.
std::optional<std::string> NodeMeeting::await_plan(int restart, const KeepWaiting& keep_waiting) {
  const NodeOptions& nodes = options_.nodes;
  const std::string leader = node_key(restart, 0);
  const auto begin = Clock::now();
  std::optional<std::chrono::milliseconds> join;  // of node 0
  do {
    if (!keep_waiting()) return std::nullopt;
    std::string record;
    try {
      // A node 0 that dies closes the connection, and one that is stopped answers nothing.
      if (!join && store_->check({leader})) record = store_->get(leader);
      return store_->get(plan_key(restart), kSlice);
    } catch (const StoreTimeout&) {
    } catch (const EnvironmentError& error) {
      throw EnvironmentError(
          fmt::format("node {}: the launcher of node 0 at {} is gone: {}", nodes.node_rank, endpoint(), error.what()));
    }
    if (!record.empty()) join = record_of(read_value(record, leader).top()).join;
  } while (Clock::now() < deadline_after(join.value_or(nodes.join), begin) + nodes.lost_after);
  detail::throw_environment(fmt::format(
      "node {}: a store answers at {}, but the launcher of node 0 has not said within {} s there who takes part{}; see "
      "whether it still runs, and whether it is "
      "the one of this job, then start all nodes again, with a longer --rdzv-timeout on node 0 if the other nodes need "
      "more time to come",
      nodes.node_rank, endpoint(), std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin).count(),
      join ? "" : ", nor that it is there"));
}

// Until enough nodes are there; then leaves the plan, or what is wrong with the nodes.
bool NodeMeeting::lead(int restart, int expected, const KeepWaiting& keep_waiting) {
  const NodeOptions& nodes = options_.nodes;
  const auto end = deadline_after(nodes.join);
  auto quiet_until = Clock::now() + nodes.quiet;
  size_t count = 0;
  const auto tell = [&](const std::string& plan) { store_->set(plan_key(restart), plan); };
  while (true) {
    if (!keep_waiting()) return false;
    const Store::Keys keys = store_->list_keys(fmt::format("{}/node/", restart));
    if (keys.size() != count) quiet_until = Clock::now() + nodes.quiet;
    count = keys.size();
    if (static_cast<int>(count) >= expected) break;
    if (static_cast<int>(count) >= nodes.min_nodes && Clock::now() >= quiet_until) break;
    if (Clock::now() >= end) {
      std::vector<int> came;
      for (const std::string& key : keys) came.push_back(record_of(read_value(store_->get(key), key).top()).node.rank);
      tell(refusal("missing", fmt::format("only {} of {} nodes came to {} within {} s: {}", count, nnodes(nodes),
                                          endpoint(), nodes.join.count() / 1000, list(came))));
      return true;
    }
    std::this_thread::sleep_for(kSlice / 4);
  }
  tell(plan_of(restart));
  return true;
}

std::string NodeMeeting::plan_of(int restart) {
  std::vector<NodeRecord> records;
  JsonWriter plan;
  plan.object().key("nodes").array();
  std::string run_id = options_.run_id;
  for (const std::string& key : store_->list_keys(fmt::format("{}/node/", restart))) {
    records.push_back(record_of(read_value(store_->get(key), key).top()));
    plan.raw(to_json(records.back()));
  }
  for (const NodeRecord& record : records) {
    if (const std::string wrong = contradiction(records[0], record); !wrong.empty()) return refusal("wrong", wrong);
  }
  if (run_id.empty()) run_id = "none";
  ranks_server_ = nullptr;
  ranks_server_ = std::make_unique<TcpStoreServer>(
      TcpStoreServerOptions{.bind_address = key_.empty() ? options_.nodes.host : "", .job_key = key_});
  return plan.end()
      .member("port", ranks_server_->port())
      .member("master-port", find_free_port())
      .member("run-id", run_id)
      .end()
      .take();
}

void NodeMeeting::leave(int others) {
  try {
    if (!server_) {
      store_->add("left", 1);
      return;
    }
    const auto end = Clock::now() + kGoodbye;
    while (store_->add("left", 0) < others && Clock::now() < end) std::this_thread::sleep_for(kSlice / 10);
  } catch (const EnvironmentError&) {
    // Node 0 has gone before: nobody waits for this one.
  }
}

}  // namespace tutti::comm

#include "tutti/symm/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/host/fd_passing.h"
#include "tutti/symm/allocation_record.h"
#include "tutti/symm/assembly.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/connection.h"
#include "tutti/symm/group_state.h"
#include "tutti/symm/peer_record.h"

namespace tutti::comm::symm {
namespace {

using Milliseconds = std::chrono::milliseconds;

std::shared_ptr<Connection> known_connection(GroupState& state, const Allocation& allocation) {
  const std::lock_guard lock(state.mutex);
  for (const auto& [key, handle] : state.handles) {
    if (key.allocation == allocation.number && key.generation == allocation.generation()) return handle->connection();
  }
  return nullptr;
}

PeerRecord describe_self(const SymmGroup& group, Allocation* allocation, int64_t offset, bool connected,
                         std::string_view purpose) {
  PeerRecord own;
  own.purpose = purpose;
  own.rank = group.rank();
  own.size = group.size();
  own.host = host_identity();
  own.uid = geteuid();
  own.pid = getpid();
  own.process = process_token();
  if (allocation == nullptr) return own;
  own.symmetric = true;
  own.data_bytes = allocation->data_bytes;
  own.pad_bytes = allocation->pad_slot_bytes;
  own.offset = offset;
  own.ordinal = allocation->group.lock() == group.state() ? static_cast<int64_t>(allocation->ordinal) : 0;
  own.generation = static_cast<int64_t>(allocation->generation());
  own.connected = connected;
  own.backend = allocation->backend.traits().name;
  // What goes wrong from here is told to all ranks, which then fail alike.
  try {
    group.select_backend(own.backend);
    allocation->backend.open();
    own.own_pad = allocation->backend.traits().host_pads && !connected && !allocation->claim_pad(*group.state());
    own.ticket = allocation->backend.ticket(*allocation->block);
  } catch (const Error& error) {
    own.problem = error.what();
  }
  return own;
}

// The pads of all ranks where they are not inside the blocks. When one rank's is not, nobody's is used.
std::vector<std::shared_ptr<FileBlock>> exchange_pads(const Meeting& meeting, const Allocation& allocation) {
  const std::shared_ptr<FileBlock> own = FileBlock::create(pad_bytes_with_header(allocation.pad_slot_bytes));
  std::vector<UniqueFd> fds = all_gather_fds(*meeting.group.store(), meeting.key + "/pads", meeting.group.rank(),
                                             meeting.group.size(), own->fd(), meeting.deadline, meeting.look_around);
  own->close_fd();
  std::vector<std::shared_ptr<FileBlock>> pads;
  for (int r = 0; r < meeting.group.size(); ++r) {
    pads.push_back(r == meeting.group.rank() ? own
                                             : FileBlock::map(std::move(fds[static_cast<size_t>(r)]), own->nbytes));
    pads.back()->close_fd();
  }
  return pads;
}

std::shared_ptr<Connection> connect(Assembly& assembly, const SymmGroup& group,
                                    const std::shared_ptr<Allocation>& allocation,
                                    const std::vector<PeerRecord>& records) {
  std::vector<Peer> peers;
  for (const PeerRecord& r : records)
    peers.push_back({.pid = static_cast<pid_t>(r.pid), .process = r.process, .ticket = r.ticket});
  const Meeting meeting{.group = group,
                        .key = assembly.prefix(),
                        .deadline = assembly.deadline(),
                        .peers = peers,
                        .look_around = [&assembly] { assembly.look_around(); }};
  Backend& backend = allocation->backend;
  const auto connection = std::make_shared<Connection>();
  connection->allocation = allocation;
  connection->generation = allocation->generation();
  connection->own_rank = group.rank();
  for (const PeerRecord& r : records) connection->generations.push_back(static_cast<uint64_t>(r.generation));

  const bool pads_outside = std::any_of(records.begin(), records.end(), [](const PeerRecord& r) { return r.own_pad; });
  // Every rank is here, so nobody uses this memory's pad for an earlier tensor any more.
  if (backend.traits().host_access && !pads_outside) {
    std::memset(allocation->pad(), 0, static_cast<size_t>(pad_bytes_with_header(allocation->pad_slot_bytes)));
  }
  backend.prepare_group(meeting);
  connection->blocks = backend.exchange(meeting, allocation->block);
  TUTTI_CHECK_ENV(connection->blocks.size() == records.size(), "backend {} gave {} blocks for {} ranks",
                  backend.traits().name, connection->blocks.size(), records.size());
  for (const auto& block : connection->blocks) {
    TUTTI_CHECK_ENV(block != nullptr, "backend {} gave no handle for a rank and no reason", backend.traits().name);
  }
  if (backend.traits().host_pads && pads_outside) connection->own_pads = exchange_pads(meeting, *allocation);
  return connection;
}

void add_pads(Connection& connection, const SymmGroup& group, const std::vector<pid_t>& pids) {
  const Allocation& allocation = *connection.allocation;
  if (!allocation.backend.traits().host_pads) {
    connection.channels = std::make_shared<ChannelPool>(1);
    return;
  }
  std::vector<std::byte*> pads;
  for (int r = 0; r < group.size(); ++r) {
    const size_t i = static_cast<size_t>(r);
    pads.push_back(connection.own_pads.empty() ? connection.blocks[i]->base + sizeof(BlockHeader)
                                               : connection.own_pads[i]->base);
  }
  connection.pads = std::make_unique<SignalPads>(
      std::move(pads), allocation.pad_slot_bytes, group.rank(),
      fmt::format("symmetric memory group '{}', rank {} of {}", group.name(), group.rank(), group.size()), pids);
  connection.channels = std::make_shared<ChannelPool>(connection.pads->channels());
}

std::string not_symmetric(const std::string& title, const std::vector<PeerRecord>& records) {
  std::string ranks;
  for (const PeerRecord& r : records) {
    if (!r.symmetric) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r.rank);
  }
  return ranks.empty()
             ? ""
             : fmt::format("{}: the tensor of ranks {} is not in symmetric memory; make it with empty_strided_p2p",
                           title, ranks);
}

HandleKey key_of(const Tensor& tensor, const Allocation* allocation) {
  if (allocation == nullptr) return {};
  return {.allocation = allocation->number,
          .generation = allocation->generation(),
          .offset = static_cast<const std::byte*>(tensor.raw_data()) - allocation->data()};
}

std::shared_ptr<SymmHandle> find_handle(GroupState& state, const HandleKey& key) {
  const std::lock_guard lock(state.mutex);
  const auto found = state.handles.find(key);
  return found == state.handles.end() ? nullptr : found->second;
}

std::shared_ptr<SymmHandle> meet(const Tensor& tensor, const SymmGroup& group, std::optional<Milliseconds> timeout,
                                 bool may_be_absent, std::string_view purpose = "a tensor") {
  TUTTI_CHECK(group, "rendezvous: no group is given");
  const std::shared_ptr<Allocation> allocation = find_allocation(tensor);
  GroupState& state = *group.state();
  if (state.process.is_in_child()) state.process.check(fmt::format("symmetric memory group '{}'", state.name));
  const HandleKey key = key_of(tensor, allocation.get());
  if (auto handle = find_handle(state, key)) return handle;

  const std::lock_guard one_at_a_time(state.collective);
  if (auto handle = find_handle(state, key)) return handle;
  std::shared_ptr<Connection> connection = allocation ? known_connection(state, *allocation) : nullptr;
  Assembly assembly(group, deadline_after(timeout.value_or(group.timeout())));
  const PeerRecord own = describe_self(group, allocation.get(), key.offset, connection != nullptr, purpose);
  const std::vector<PeerRecord> records = assembly.exchange_records(own);

  const std::string absent = not_symmetric(assembly.title(), records);
  const bool nowhere = std::none_of(records.begin(), records.end(), [](const PeerRecord& r) { return r.symmetric; });
  const bool reaches_hosts = allocation && allocation->backend.traits().reaches_hosts;
  const std::string verdict = absent.empty() ? find_disagreement(assembly.title(), records, reaches_hosts) : absent;
  if (!verdict.empty()) {
    assembly.part();
    if (nowhere && may_be_absent) return nullptr;
    if (!absent.empty()) throw NotSymmetricError(verdict);
    throw UsageError(verdict);
  }
  if (!connection) {
    try {
      connection = connect(assembly, group, allocation, records);
      connection->number = state.meetings;
      assembly.commit();
    } catch (const Error& error) {
      connection.reset();
      assembly.fail(error);
    }
    add_pads(*connection, group, assembly.pids());
    allocation->remember(group.state());
  } else {
    assembly.commit();
  }
  const auto handle = std::make_shared<SymmHandle>(connection, group, key.offset);
  const std::lock_guard lock(state.mutex);
  return state.handles.emplace(key, handle).first->second;
}

}  // namespace

void connect_group(const SymmGroup& group, std::optional<Milliseconds> timeout) {
  TUTTI_CHECK(group, "connect_group: no group is given");
  const std::lock_guard one_at_a_time(group.state()->collective);
  Assembly assembly(group, deadline_after(timeout.value_or(group.timeout())));
  PeerRecord own = describe_self(group, nullptr, 0, false, "connect_group");
  try {
    own.backend = group.backend();
    find_backend(own.backend).open();
  } catch (const Error& error) {
    own.problem = error.what();
  }
  const std::vector<PeerRecord> records = assembly.exchange_records(own);
  const bool reaches_hosts = own.problem.empty() && find_backend(own.backend).traits().reaches_hosts;
  const std::string verdict = find_disagreement(assembly.title(), records, reaches_hosts);
  if (!verdict.empty()) {
    assembly.part();
    throw UsageError(verdict);
  }
  try {
    find_backend(own.backend)
        .prepare_group({.group = group,
                        .key = assembly.prefix(),
                        .deadline = assembly.deadline(),
                        .peers = {},
                        .look_around = [&assembly] { assembly.look_around(); }});
    assembly.commit();
  } catch (const Error& error) {
    assembly.fail(error);
  }
}

std::shared_ptr<SymmHandle> rendezvous(const Tensor& tensor, const SymmGroup& group,
                                       std::optional<Milliseconds> timeout) {
  return meet(tensor, group, timeout, false);
}

std::shared_ptr<SymmHandle> rendezvous_for(std::string_view purpose, const Tensor& tensor, const SymmGroup& group) {
  return meet(tensor, group, std::nullopt, false, purpose);
}

std::shared_ptr<SymmHandle> known_handle(const Tensor& tensor, const SymmGroup& group) {
  const std::shared_ptr<Allocation> allocation = find_allocation(tensor);
  return allocation ? find_handle(*group.state(), key_of(tensor, allocation.get())) : nullptr;
}

std::shared_ptr<SymmHandle> rendezvous(const Tensor& tensor) {
  const auto allocation = find_allocation(tensor);
  if (!allocation)
    throw NotSymmetricError("rendezvous: the tensor is not in symmetric memory; make it with empty_strided_p2p");
  const auto state = allocation->group.lock();
  TUTTI_CHECK(state != nullptr, "rendezvous: no group was given at allocation, or it is gone; name one");
  return rendezvous(tensor, SymmGroup(state));
}

std::shared_ptr<SymmHandle> try_rendezvous(const Tensor& tensor, const SymmGroup& group,
                                           std::optional<Milliseconds> timeout) {
  return meet(tensor, group, timeout, true);
}

}  // namespace tutti::comm::symm

// Creation of the transport that uses shared memory inside hosts and a network between them.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "tutti/comm/hier/hier_transport.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/job/host/host_identity.h"

namespace tutti::comm {
namespace {

bool under_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

std::string outer_name() {
  std::string why_not;
  for (const char* name : {"mpi", "gloo"}) {
    if (std::string_view(name) == "mpi" && !under_mpirun()) continue;
    for (const TransportInfo& info : known_transports()) {
      if (info.name != name) continue;
      if (info.available) return name;
      why_not = info.why_not;
    }
  }
  throw UsageError(fmt::format("transport hier: nothing carries data between hosts: {}", why_not));
}

using Identity = std::array<std::byte, 64>;

class Identities final : public Receiver {
 public:
  explicit Identities(int size) : of(static_cast<size_t>(size)) {}
  void receive(std::span<const Arrival> from) override {
    for (size_t p = 0; p < from.size(); ++p) {
      if (from[p].bytes > 0) std::copy_n(from[p].data, from[p].bytes, of[p].begin() + from[p].offset);
    }
  }
  std::vector<Identity> of;
};

// The host of every rank, asked over the transport that all have.
std::vector<Identity> identities(Transport& transport, Clock::time_point deadline, const std::string& group) {
  Identity mine{};
  const uint64_t halves[2] = {hash64(host_identity(), 0), hash64(host_identity(), 1)};
  std::copy_n(reinterpret_cast<const std::byte*>(halves), sizeof halves, mine.begin());
  CallRecord call;
  call.kind = CollectiveKind::all_gather_bytes;
  const ConstBlock offer{mine.data(), mine.size()};
  const int64_t take = mine.size();
  const Exchange exchange{.offers = {&offer, 1}, .takes = {&take, 1}};
  Identities received(transport.size());
  transport.start(call, 0, exchange, received);
  constexpr uint32_t kSleepsAtOnce = 1u << 20;
  while (!transport.advance()) {
    transport.pause(kSleepsAtOnce, std::chrono::milliseconds(10));
    if (Clock::now() < deadline) continue;
    std::vector<std::string> late;
    for (const int p : transport.late_ranks()) late.push_back(describe(p, transport.peer(p)));
    const std::string message =
        fmt::format("group '{}' was not made by the deadline: {} did not come", group, fmt::join(late, ", "));
    transport.fail(message);
    throw TimeoutError(message);
  }
  return received.of;
}

// Collective over the members. Between hosts it uses mpi under mpirun, else gloo; if all members can share memory, the
// result is shm alone. UsageError without a store, and when this build has no transport between hosts.
std::unique_ptr<Transport> make_hier_transport(const GroupSeat& seat) {
  TUTTI_CHECK(seat.store != nullptr, "group '{}': transport hier needs a store, where the ranks of a host meet",
              seat.name);
  std::unique_ptr<Transport> outer = make_transport(outer_name(), seat);
  std::vector<Identity> hosts;
  try {
    hosts = identities(*outer, seat.deadline, seat.name);
  } catch (const PeerError& error) {
    throw PeerError(fmt::format("{}, while the group '{}' was made", error.what(), seat.name));
  }
  GroupSeat inside = seat;
  std::vector<int> members;
  inside.world_ranks.clear();
  inside.pids.clear();
  inside.identities.clear();
  for (int p = 0; p < seat.size; ++p) {
    if (hosts[static_cast<size_t>(p)] != hosts[static_cast<size_t>(seat.rank)]) continue;
    if (p == seat.rank) inside.rank = static_cast<int>(members.size());
    members.push_back(p);
    if (!seat.world_ranks.empty()) inside.world_ranks.push_back(seat.world_ranks[static_cast<size_t>(p)]);
    if (!seat.pids.empty()) inside.pids.push_back(seat.pids[static_cast<size_t>(p)]);
    if (!seat.identities.empty()) inside.identities.push_back(seat.identities[static_cast<size_t>(p)]);
  }
  inside.size = static_cast<int>(members.size());
  inside.key = fmt::format("{}/host of {}", seat.key, members[0]);
  inside.shown_ranks = members;
  std::unique_ptr<Transport> inner;
  try {
    inner = make_transport("shm", inside);
  } catch (const Error& error) {
    outer->fail(error.what());  // those on other hosts wait in the first call
    throw;
  }
  if (inside.size == seat.size) return inner;
  std::vector<int> numbers;  // of the hosts, by their first ranks
  for (const Identity& host : hosts)
    numbers.push_back(static_cast<int>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin()));
  return std::make_unique<HierTransport>(std::move(inner), std::move(outer), numbers, seat.name);
}

}  // namespace

TUTTI_TRANSPORT(hier, make_hier_transport);

}  // namespace tutti::comm

// The mesh of a group's gloo connections: one TCP connection per pair of ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "tutti/comm/gloo/gloo_engine.h"
#include "tutti/comm/gloo/handover.h"
#include "tutti/comm/gloo/interface.h"
#include "tutti/comm/gloo/proven_mesh.h"
#include "tutti/comm/message/message_transport.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/host/host_identity.h"
#include "tutti/job/host/member_watch.h"
#include "tutti/job/store/job_key.h"
#include "tutti/job/store/store_meeting.h"
#include "tutti/runtime/held_signal.h"

namespace tutti::comm {
namespace {

// The making of one group on one rank.
class Making {
 public:
  explicit Making(const GroupSeat& seat)
      : seat_(seat),
        watch_(*seat.store, seat.name, seat.pids, seat.shown_ranks, seat.far),
        alarm_(seat.key + "/gloo/alarm") {}

  GlooMesh connect() {
    GlooMesh made;
    try {
      watch_.guard([&] {
        const std::string address = choose();
        listen(address);
        connect_all(address, meet("addresses", mesh_->card()));
        made = hand_over();
        // Who gives up closes its connections. Before all have theirs, nobody could tell that from a death.
        meet("connected", "");
      });
    } catch (const TimeoutError&) {
      throw;  // the others have deadlines of their own
    } catch (const PeerError& error) {
      sound_alarm(*seat_.store, alarm_, error.what());
    } catch (const UsageError& error) {
      tell(error.what());
      throw;
    } catch (const EnvironmentError& error) {
      tell(error.what());
      throw;
    }
    return made;
  }

 private:
  std::string name_of(int rank) const {
    const auto p = static_cast<size_t>(rank);
    return p < seat_.identities.size() ? describe(rank, seat_.identities[p]) : fmt::format("rank {}", rank);
  }

  // What went wrong on this rank alone.
  void tell(const std::string& reason) {
    try {
      sound_alarm(*seat_.store, alarm_,
                  fmt::format("{} cannot make the group '{}': {}", name_of(seat_.rank), seat_.name, reason));
    } catch (const MeetingEnded&) {
    }
  }

  std::vector<std::string> meet(const char* what, const std::string& value) {
    const StoreMeeting meeting{.store = *seat_.store,
                               .key = fmt::format("{}/gloo/{}", seat_.key, what),
                               .alarm = alarm_,
                               .rank = seat_.rank,
                               .size = seat_.size,
                               .deadline = seat_.deadline,
                               .look_around = [this] { look_around(); }};
    return meet_in_store(meeting, value,
                         [this](const std::vector<int>& missing) {
                           std::vector<std::string> names;
                           for (const int r : missing) names.push_back(name_of(r));
                           throw TimeoutError(
                               fmt::format("group '{}' was not made by the deadline: {} did not come (gloo, store {})",
                                           seat_.name, fmt::join(names, ", "), seat_.store->address()));
                         })
        .values;
  }

  // Strangers are dropped while the others are waited for, so that they do not fill the queue of those who connect.
  void look_around() {
    if (mesh_) mesh_->serve(std::chrono::milliseconds(0));
    watch_.look_around();
  }

  std::string choose() {
    const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
    std::string named;
    if (wanted != nullptr && *wanted != '\0') named = choose_address(wanted);
    const std::vector<std::string> hosts = meet("hosts", host_identity());
    const bool all_are_here =
        std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host == hosts[0]; });
    return named.empty() ? choose_address("", all_are_here) : named;
  }

  void listen(const std::string& address) {
    const MeshPlan plan{
        .group = seat_.key, .job_key = read_job_key(), .rank = seat_.rank, .size = seat_.size, .address = address};
    try {
      mesh_.emplace(plan);
    } catch (const EnvironmentError& error) {
      throw EnvironmentError(fmt::format("group '{}', rank {}: {}; GLOO_SOCKET_IFNAME names another interface",
                                         seat_.name, seat_.rank, error.what()));
    }
  }

  std::string connection_with(int p) const {
    return p < seat_.rank
               ? fmt::format("the connection of rank {} to {} at {}", seat_.rank, name_of(p), mesh_->meeting_point(p))
               : fmt::format("the connection of {} to rank {} at {}", name_of(p), seat_.rank, mesh_->meeting_point(p));
  }

  void connect_all(const std::string& address, const std::vector<std::string>& cards) {
    try {
      mesh_->connect(cards);
    } catch (const EnvironmentError& error) {
      throw EnvironmentError(fmt::format("group '{}': {}", seat_.name, error.what()));
    }
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(seat_.deadline - Clock::now());
      if (mesh_->serve(std::clamp(left, std::chrono::milliseconds(0), kLookAround))) return;
      if (mesh_->failure()) throw_failure(*mesh_->failure(), address);
      heed_alarm(*seat_.store, alarm_);
      watch_.look_around();
      if (left.count() > 0) continue;
      throw TimeoutError(fmt::format("group '{}' was not made by the deadline: {} does not come about{}", seat_.name,
                                     connection_with(mesh_->missing()), mesh_->troubles()));
    }
  }

  [[noreturn]] void throw_failure(const MeshFailure& failure, const std::string& address) const {
    const int p = failure.rank;
    if (failure.has_other_key) {
      throw UsageError(fmt::format(
          "group '{}': {} was refused, because {} has another job key than rank {}; all ranks need the same "
          "TUTTI_JOB_KEY (or TUTTI_JOB_KEY_FILE)",
          seat_.name, connection_with(p), name_of(p), seat_.rank));
    }
    throw PeerError(fmt::format(
        "{} is gone or out of reach while the group '{}' was made: {} failed: {}. Peers must be able to reach this "
        "host's address {}; GLOO_SOCKET_IFNAME names another interface",
        name_of(p), seat_.name, connection_with(p), failure.why, address));
  }

  GlooMesh hand_over() {
    std::vector<UniqueFd> sockets = mesh_->take();
    mesh_.reset();
    try {
      return hand_over_to_gloo(seat_.rank, std::move(sockets));
    } catch (const EnvironmentError& error) {
      throw EnvironmentError(fmt::format("group '{}', rank {}: gloo cannot use its connections: {}", seat_.name,
                                         seat_.rank, error.what()));
    }
  }

  const GroupSeat& seat_;
  MemberWatch watch_;
  const std::string alarm_;         // a key: why the group cannot be made
  std::optional<ProvenMesh> mesh_;  // until gloo has the connections
};

// Collective over the seat's members, which find each other's addresses in the store and return when all are connected
// to all; nothing of it stays in the store. The network interface is that of GLOO_SOCKET_IFNAME, else the loopback
// where all members share a host, else that of this host's name, else the first one that is up and not the loopback.
//
// UsageError without a store, with an unknown interface or with different job keys. TimeoutError at the deadline names
// the ranks that are late. PeerError names a rank that died, noticed by any member, or could not connect, within a
// fraction of a second.
std::unique_ptr<Transport> make_gloo_transport(const GroupSeat& seat) {
  TUTTI_CHECK(seat.store != nullptr, "group '{}': gloo needs a store in which the ranks find each other's addresses",
              seat.name);
  const HeldSignal held(SIGPIPE);  // also in the thread of gloo, which is started here
  GlooMesh mesh = Making(seat).connect();
  auto engine = make_gloo_engine(std::move(mesh), seat.pids);
  return std::make_unique<MessageTransport>(std::move(engine), seat.name, seat.identities);
}

}  // namespace

TUTTI_TRANSPORT(gloo, make_gloo_transport);

}  // namespace tutti::comm

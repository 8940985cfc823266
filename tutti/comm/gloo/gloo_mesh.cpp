// The mesh of a group's gloo connections: one TCP connection per pair of ranks.
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tutti/comm/gloo/connector.h"
#include "tutti/comm/gloo/gloo_engine.h"
#include "tutti/comm/gloo/interface.h"
#include "tutti/comm/message/message_transport.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/job/host/member_watch.h"
#include "tutti/job/store/store_meeting.h"
#include "tutti/runtime/held_signal.h"

namespace tutti::comm {
namespace {

namespace tcp = gloo::transport::tcp;
using gloo::transport::Context;
using Bytes = std::vector<char>;

// Deadlines are kept here: gloo's own would close connections that are in use.
constexpr std::chrono::milliseconds kNoTimeout = std::chrono::hours(24 * 365);

// Every pair listens on a port of its own: one value holds all addresses of a rank, each after its length.
std::string pack(const std::vector<Bytes>& addresses) {
  std::string text;
  for (const Bytes& bytes : addresses) {
    const auto length = static_cast<uint32_t>(bytes.size());
    text.append(reinterpret_cast<const char*>(&length), sizeof length);
    text.append(bytes.begin(), bytes.end());
  }
  return text;
}

// Entry `index` of what pack() made; empty when it is not of that form.
Bytes unpack(std::string_view text, int index) {
  uint32_t length = 0;
  for (int i = 0;; ++i) {
    if (text.size() < sizeof length) return {};
    std::memcpy(&length, text.data(), sizeof length);
    text.remove_prefix(sizeof length);
    if (text.size() < length) return {};
    if (i == index) return {text.begin(), text.begin() + length};
    text.remove_prefix(length);
  }
}

// The making of one group on one rank.
class Making {
 public:
  explicit Making(const GroupSeat& seat) : seat_(seat), watch_(*seat.store, seat.name, seat.pids, seat.shown_ranks, seat.far), alarm_(seat.key + "/gloo/alarm") {}

  // `sockets`: those of its connections, by rank.
  std::shared_ptr<Context> connect(std::vector<PairSocket>& sockets) {
    std::shared_ptr<Context> context;
    try {
      watch_.guard([&] {
        const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
        const InterfaceChoice chosen = choose_interface(wanted ? wanted : "");
        context = listen(chosen);
        connect_all(*context, chosen, meet("addresses", pack(own_addresses(*context))), sockets);
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
    return context;
  }

 private:
  std::string name_of(int rank) const {
    const auto p = static_cast<size_t>(rank);
    return p < seat_.identities.size() ? describe(rank, seat_.identities[p]) : fmt::format("rank {}", rank);
  }

  // What went wrong on this rank alone.
  void tell(const std::string& reason) {
    try {
      sound_alarm(*seat_.store, alarm_, fmt::format("{} cannot make the group '{}': {}", name_of(seat_.rank), seat_.name, reason));
    } catch (const MeetingEnded&) {
    }
  }

  std::vector<std::string> meet(const char* what, const std::string& value) {
    const StoreMeeting meeting{.store = *seat_.store, .key = fmt::format("{}/gloo/{}", seat_.key, what), .alarm = alarm_,
                               .rank = seat_.rank, .size = seat_.size, .deadline = seat_.deadline,
                               .look_around = [this] { watch_.look_around(); }};
    return meet_in_store(meeting, value, [this](const std::vector<int>& missing) {
      std::vector<std::string> names;
      for (const int r : missing) names.push_back(name_of(r));
      throw TimeoutError(fmt::format("group '{}' was not made by the deadline: {} did not come (gloo, store {})", seat_.name,
                                     fmt::join(names, ", "), seat_.store->address()));
    }).values;
  }

  std::shared_ptr<Context> listen(const InterfaceChoice& chosen) const {
    tcp::attr attributes;
    attributes.iface = chosen.name;
    if (chosen.name.empty()) attributes.hostname = chosen.address;
    try {
      auto context = tcp::CreateDevice(attributes)->createContext(seat_.rank, seat_.size);
      context->setTimeout(kNoTimeout);
      for (int p = 0; p < seat_.size; ++p) {
        if (p != seat_.rank) context->createPair(p);
      }
      return context;
    } catch (const std::exception& error) {
      throw EnvironmentError(fmt::format("group '{}', rank {}: gloo cannot listen on {}: {}; GLOO_SOCKET_IFNAME names another interface",
                                         seat_.name, seat_.rank, chosen.address, error.what()));
    }
  }

  std::vector<Bytes> own_addresses(Context& context) const {
    std::vector<Bytes> addresses(static_cast<size_t>(seat_.size));
    for (int p = 0; p < seat_.size; ++p) {
      if (p != seat_.rank) addresses[static_cast<size_t>(p)] = context.getPair(p)->address().bytes();
    }
    return addresses;
  }

  void connect_all(Context& context, const InterfaceChoice& chosen, const std::vector<std::string>& packed, std::vector<PairSocket>& sockets) {
    std::vector<Bytes> addresses(packed.size());
    for (size_t p = 0; p < packed.size(); ++p) {
      if (static_cast<int>(p) == seat_.rank) continue;
      addresses[p] = unpack(packed[p], seat_.rank);
      const size_t expected = context.getPair(static_cast<int>(p))->address().bytes().size();
      TUTTI_CHECK_ENV(addresses[p].size() == expected, "group '{}': what the store has for rank {} are no addresses", seat_.name, p);
    }
    const auto connection = [&](int p) {
      return fmt::format("the connection of rank {} to {} at {}", seat_.rank, name_of(p), tcp::Address(addresses[static_cast<size_t>(p)]).str());
    };
    GlooConnector connector(context, addresses);
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(seat_.deadline - Clock::now());
      try {
        if (connector.wait_for(std::clamp(left, std::chrono::milliseconds(0), kLookAround))) {
          sockets = find_pair_sockets(context, addresses);
          return;
        }
      } catch (const EnvironmentError& error) {
        const int p = connector.peer();
        throw PeerError(fmt::format("{} is gone or out of reach while the group '{}' was made: {} failed: {}. Peers must be able to reach this "
                                    "host's address {}; GLOO_SOCKET_IFNAME names another interface",
                                    name_of(p), seat_.name, connection(p), error.what(), chosen.address));
      }
      heed_alarm(*seat_.store, alarm_);
      watch_.look_around();
      if (left.count() > 0) continue;
      throw TimeoutError(fmt::format("group '{}' was not made by the deadline: {} does not come about", seat_.name, connection(connector.peer())));
    }
  }

  const GroupSeat& seat_;
  MemberWatch watch_;
  const std::string alarm_;  // a key: why the group cannot be made
};

// Collective over the seat's members, which find each other's addresses in the store and return when all are connected to
// all; nothing of it stays in the store. The network interface is that of GLOO_SOCKET_IFNAME, else that of this host's
// name, else the first one that is up and not the loopback.
//
// UsageError without a store or with an unknown interface. TimeoutError at the deadline names the ranks that are late.
// PeerError names a rank that died, noticed by any member, or could not connect, within a fraction of a second.
std::unique_ptr<Transport> make_gloo_transport(const GroupSeat& seat) {
  TUTTI_CHECK(seat.store != nullptr, "group '{}': gloo needs a store in which the ranks find each other's addresses", seat.name);
  const HeldSignal held(SIGPIPE);  // also in the thread of gloo, which is started here
  std::vector<PairSocket> sockets;
  auto context = Making(seat).connect(sockets);
  auto engine = make_gloo_engine(std::move(context), seat.pids, std::move(sockets));
  return std::make_unique<MessageTransport>(std::move(engine), seat.name, seat.identities);
}

}  // namespace

TUTTI_TRANSPORT(gloo, make_gloo_transport);

}  // namespace tutti::comm

// Creation of the shared memory of a group whose members are processes of one host.
#include <cstdlib>
#include <string_view>

#include "tutti/comm/shm/shm_transport.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/host/fd_passing.h"
#include "tutti/job/host/member_watch.h"

namespace tutti::comm {
namespace {

UniqueFd pass_segment(const GroupSeat& seat, int fd) {
  MemberWatch watch(*seat.store, seat.name, seat.pids, seat.shown_ranks, seat.far);
  const auto describe_rank = [&](int rank) {
    const auto p = static_cast<size_t>(rank);
    return describe(shown_rank(seat.shown_ranks, rank),
                    p < seat.identities.size() ? seat.identities[p] : PeerIdentity());
  };
  UniqueFd passed;
  watch.guard([&] {
    try {
      passed = broadcast_fd(
          *seat.store, seat.key + "/shm", seat.rank, seat.size, 0, fd, seat.deadline, [&] { watch.look_around(); },
          describe_rank);
    } catch (const TimeoutError& error) {
      throw TimeoutError(fmt::format("group '{}' was not made by the deadline: {}", seat.name, error.what()));
    } catch (const PeerError& error) {
      throw PeerError(fmt::format("{}, while the group '{}' was made", error.what(), seat.name));
    }
  });
  return passed;
}

// Some sandboxes end a process that asks the kernel for another one's memory.
bool may_pull() {
  const char* text = std::getenv("TUTTI_SINGLE_COPY");
  const std::string_view wish = text == nullptr ? "" : text;
  TUTTI_CHECK(wish.empty() || wish == "0" || wish == "1",
              "TUTTI_SINGLE_COPY is '{}'; expected 0 (never) or 1 (where the kernel allows it)", wish);
  return wish != "0";
}

// Collective over the members. Rank 0 creates the memory and passes its descriptor; nothing is left in the file
// system.
std::unique_ptr<Transport> make_shm_transport(const GroupSeat& seat) {
  TUTTI_CHECK(seat.size <= kMaxShmRanks, "transport shm joins at most {} ranks of one host; group '{}' has {}",
              kMaxShmRanks, seat.name, seat.size);
  ShmOptions options{.group = seat.name,
                     .shown_ranks = seat.shown_ranks,
                     .world_ranks = seat.world_ranks,
                     .local_ranks = seat.local_ranks,
                     .may_pull = may_pull()};
  std::shared_ptr<Segment> segment;
  if (seat.rank == 0) {
    segment = Segment::create(seat.size);
    // Who dies between getting the memory and writing into it is known to the others all the same.
    for (size_t r = 0; r < seat.pids.size(); ++r) segment->area(static_cast<int>(r)).pid.store(seat.pids[r]);
  }
  if (seat.size > 1) {
    UniqueFd fd = pass_segment(seat, segment ? segment->fd() : -1);
    if (seat.rank != 0) segment = Segment::open(fd.release());
  }
  segment->close_fd();
  return std::make_unique<ShmTransport>(std::move(segment), seat.rank, std::move(options));
}

}  // namespace

std::string note_of_shm() {
  if (!may_pull()) return "large tensors: two copies (TUTTI_SINGLE_COPY=0)";
  const std::string why_not = why_no_peer_memory();
  return why_not.empty() ? "large tensors: one copy, by the kernel"
                         : fmt::format("large tensors: two copies, because {}", why_not);
}

TUTTI_TRANSPORT(shm, make_shm_transport, note_of_shm);

}  // namespace tutti::comm

// Creation of the shared memory of a group whose members are threads of this process.
#include <unistd.h>

#include <map>
#include <mutex>

#include "tutti/comm/shm/shm_transport.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// Segments that some members have still to take.
struct Waiting {
  std::shared_ptr<Segment> segment;
  int taken = 0;
};
std::mutex waiting_mutex;
std::map<std::string, Waiting> waiting;  // guarded by waiting_mutex

std::shared_ptr<Segment> take_segment(const GroupSeat& seat) {
  const std::lock_guard lock(waiting_mutex);
  Waiting& entry = waiting[seat.key];
  if (!entry.segment) {
    entry.segment = Segment::create(seat.size);
    // Who has not come yet is known by its process all the same.
    for (int r = 0; r < seat.size; ++r) entry.segment->area(r).pid.store(getpid());
    entry.segment->close_fd();
  }
  std::shared_ptr<Segment> segment = entry.segment;
  TUTTI_CHECK(segment->world_size() == seat.size, "group '{}': rank {} says it has {} members, another one says {}",
              seat.name, seat.rank, seat.size, segment->world_size());
  if (++entry.taken == seat.size) waiting.erase(seat.key);
  return segment;
}

// Every member calls it with the same key; the first caller creates the memory. Never waits.
std::unique_ptr<Transport> make_thread_transport(const GroupSeat& seat) {
  TUTTI_CHECK(seat.size <= kMaxShmRanks, "transport threads joins at most {} ranks; group '{}' has {}", kMaxShmRanks,
              seat.name, seat.size);
  ShmOptions options{
      .group = seat.name, .one_address_space = true, .world_ranks = seat.world_ranks, .local_ranks = seat.local_ranks};
  return std::make_unique<ShmTransport>(take_segment(seat), seat.rank, std::move(options));
}

}  // namespace

TUTTI_TRANSPORT(threads, make_thread_transport);

}  // namespace tutti::comm

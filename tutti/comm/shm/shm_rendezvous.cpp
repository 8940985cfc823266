#include "tutti/comm/shm/shm_rendezvous.h"

#include "tutti/comm/shm/fd_passing.h"
#include "tutti/comm/shm/shm_transport.h"
#include "tutti/core/error.h"

namespace tutti::comm {

std::unique_ptr<Transport> make_shm_transport(const GroupSeat& seat) {
  TUTTI_CHECK(seat.size <= kMaxShmRanks, "transport shm joins at most {} ranks of one host; group '{}' has {}", kMaxShmRanks, seat.name, seat.size);
  ShmOptions options{.group = seat.name, .local_ranks = seat.local_ranks};
  std::shared_ptr<Segment> segment;
  if (seat.rank == 0) segment = Segment::create(seat.size);
  if (seat.size > 1) {
    UniqueFd fd = broadcast_fd(*seat.store, seat.key + "/shm", seat.rank, seat.size, 0, segment ? segment->fd() : -1, seat.deadline);
    if (seat.rank != 0) segment = Segment::open(fd.release());
  }
  segment->close_fd();
  return std::make_unique<ShmTransport>(std::move(segment), seat.rank, std::move(options));
}

}  // namespace tutti::comm

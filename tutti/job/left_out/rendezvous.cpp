#include "tutti/job/rendezvous/rendezvous.h"

#include "tutti/job/left_out/left_out.h"

namespace tutti::comm {

Rendezvous rendezvous(const std::string& url, RendezvousOptions) { throw_left_out(fmt::format("the meeting of processes at '{}'", url)); }

// This serves ranks that are threads.
Rendezvous rendezvous(std::shared_ptr<Store> store, int rank, int world_size) {
  TUTTI_CHECK(store != nullptr, "rendezvous: the store is nullptr");
  TUTTI_CHECK(world_size >= 1 && rank >= 0 && rank < world_size, "rendezvous: the rank is {} and the world size {}; ranks count from 0", rank,
              world_size);
  return {.store = std::move(store), .rank = rank, .world_size = world_size};
}

}  // namespace tutti::comm

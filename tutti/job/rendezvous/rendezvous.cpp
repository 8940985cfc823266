#include "tutti/job/rendezvous/rendezvous.h"

#include "tutti/core/error.h"
#include "tutti/job/distributed.h"
#include "tutti/job/rendezvous/find_store.h"

namespace tutti::comm {
namespace {

// More than any job has: a wrong number must not take memory for all its ranks before they can disagree about it.
constexpr int kMostRanks = 65536;

}  // namespace

void check_place(const std::string& what, int rank, int world_size) {
  TUTTI_CHECK(world_size >= 1, "{}: the world size is {}; it must be 1 or more", what, world_size);
  TUTTI_CHECK(world_size <= kMostRanks, "{}: the world size is {}; it must be {} or less", what, world_size,
              kMostRanks);
  TUTTI_CHECK(rank >= 0 && rank < world_size, "{}: the rank is {} and the world size {}; ranks count from 0", what,
              rank, world_size);
}

Rendezvous rendezvous(const std::string& url, RendezvousOptions options) {
  return services_for(fmt::format("the meeting of processes at '{}'", url)).find_store(url, options);
}

Rendezvous rendezvous(std::shared_ptr<Store> store, int rank, int world_size) {
  TUTTI_CHECK(store != nullptr, "rendezvous: the store is nullptr");
  check_place("rendezvous", rank, world_size);
  return {.store = std::move(store), .rank = rank, .world_size = world_size};
}

}  // namespace tutti::comm

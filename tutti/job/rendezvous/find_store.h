// The rendezvous of ranks that are processes, behind rendezvous(url).
#pragma once

#include <string>

#include "tutti/job/rendezvous/rendezvous.h"

namespace tutti::comm {

Rendezvous find_store(const std::string& url, const RendezvousOptions& options);

// UsageError, beginning with `what`, unless `rank` is one of the world.
void check_place(const std::string& what, int rank, int world_size);

}  // namespace tutti::comm

#include "tutti/comm/transports.h"

#include "tutti/comm/fake/fake_transport.h"
#include "tutti/comm/gloo/gloo_mesh.h"
#include "tutti/comm/hier/make_hier.h"
#include "tutti/comm/mpi/mpi_transport.h"
#include "tutti/comm/shm/shm_rendezvous.h"
#include "tutti/comm/shm/thread_rendezvous.h"
#include "tutti/core/error.h"
#include "tutti/job/distributed.h"

namespace tutti::comm {
namespace {

struct Entry {
  const char* name;
  const char* use;
  std::unique_ptr<Transport> (*make)(const GroupSeat& seat);
  std::string_view why_not = "";  // "": part of this build
};

// `own`: why this engine is missing where others are not.
std::string_view why_not_engine(std::string_view own) { return why_not_distributed().empty() ? own : why_not_distributed(); }

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"shm", "processes of one host, over shared memory", make_shm_transport, why_not_distributed()},
      {"threads", "threads of one process", make_thread_transport},
      {"mpi", "processes that mpirun started", make_mpi_transport, why_not_engine(TUTTI_MPI_WHY_NOT)},
      {"gloo", "several hosts, over TCP", make_gloo_transport, why_not_engine(TUTTI_GLOO_WHY_NOT)},
      {"hier", "shared memory inside hosts, mpi or gloo between them", make_hier_transport, why_not_distributed()},
      {"fake", "no peers: checks calls and counts bytes", make_fake_transport},
  };
  return all;
}

}  // namespace

std::vector<TransportInfo> known_transports() {
  std::vector<TransportInfo> infos;
  for (const Entry& entry : entries()) infos.push_back({entry.name, entry.why_not.empty(), std::string(entry.why_not), entry.use});
  return infos;
}

std::unique_ptr<Transport> make_transport(std::string_view name, const GroupSeat& seat) {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) {
    names.push_back(entry.name);
    if (name != entry.name) continue;
    TUTTI_CHECK(entry.why_not.empty(), "transport {} is not part of this build: {}", name, entry.why_not);
    return entry.make(seat);
  }
  throw UsageError(unknown_name_message("transport", name, names));
}

}  // namespace tutti::comm

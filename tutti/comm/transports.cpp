#include "tutti/comm/transports.h"

#include "tutti/core/error.h"
#include "tutti/job/distributed.h"

namespace tutti::comm {
namespace {

struct Known {
  const char* name;
  const char* use;
  std::string_view why_not = "";  // where a build with other transports between processes has none by this name
};
constexpr Known kKnown[] = {
    {"shm", "processes of one host, over shared memory"},
    {"threads", "threads of one process"},
    {"mpi", "processes that mpirun started", TUTTI_MPI_WHY_NOT},
    {"gloo", "several hosts, over TCP", TUTTI_GLOO_WHY_NOT},
    {"hier", "shared memory inside hosts, mpi or gloo between them", TUTTI_HIER_WHY_NOT},
    {"fake", "no peers: checks calls and counts bytes"},
};

const TransportEngine* find_engine(std::string_view name) {
  for (const TransportEngine* engine : transport_engines()) {
    if (engine->name == name) return engine;
  }
  return nullptr;
}

std::string_view why_missing(const Known& known) {
  return why_not_distributed().empty() ? known.why_not : why_not_distributed();
}

}  // namespace

std::vector<TransportInfo> known_transports() {
  std::vector<TransportInfo> infos;
  for (const Known& known : kKnown) {
    const bool available = find_engine(known.name) != nullptr;
    infos.push_back({known.name, available, available ? "" : std::string(why_missing(known)), known.use});
  }
  return infos;
}

std::string note_on_transport(std::string_view name) {
  const TransportEngine* engine = find_engine(name);
  return engine == nullptr || engine->note == nullptr ? "" : engine->note();
}

std::unique_ptr<Transport> make_transport(std::string_view name, const GroupSeat& seat) {
  if (const TransportEngine* engine = find_engine(name)) return engine->make(seat);
  std::vector<std::string> present;
  for (const Known& known : kKnown) {
    if (find_engine(known.name) != nullptr) present.push_back(known.name);
  }
  for (const Known& known : kKnown) {
    if (name != known.name) continue;
    const std::string_view why = why_missing(known);
    throw UsageError(fmt::format("transport {} is not part of this build: {}", name,
                                 why.empty() ? fmt::format("it has {}", fmt::join(present, ", ")) : std::string(why)));
  }
  throw UsageError(unknown_name_message("transport", name, present));
}

}  // namespace tutti::comm

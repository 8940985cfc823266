#include "tutti/job/rendezvous/find_store.h"

#include "tutti/job/rendezvous/init_url.h"
#include "tutti/job/rendezvous/launch_variables.h"
#include "tutti/job/store/file_store.h"
#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {
namespace {

// One of the two places that may tell rank or world size.
std::optional<int> choose(const InitUrl& url, const char* name, std::optional<int> in_url,
                          std::optional<int> argument) {
  TUTTI_CHECK(!in_url || !argument, "init method '{}': {} is given in the URL ({}) and as an argument ({}); drop one",
              url.text, name, *in_url, *argument);
  return in_url ? in_url : argument;
}

// Ranks of one host to whom nobody has given a port. A job key that the user has set counts; otherwise rank 0 makes
// one.
void join_local(Rendezvous& result, const MeetingPoint& point, const RendezvousOptions& options) {
  const LocalMeetingPlace place = local_meeting_place(point.rank_variable);
  StoreTicket ticket;
  if (result.rank == 0) {
    ticket.job_key = options.job_key.empty() ? make_job_key() : options.job_key;
    result.server =
        std::make_shared<TcpStoreServer>(TcpStoreServerOptions{.bind_address = point.host, .job_key = ticket.job_key});
    ticket.port = result.server->port();
    result.door = std::make_shared<LocalDoor>(place, ticket, result.world_size);
  } else {
    ticket = knock(place, result.rank, result.world_size, options.timeout);
  }
  result.store = std::make_shared<TcpStore>(
      TcpStoreOptions{.host = point.host, .port = ticket.port, .timeout = options.timeout, .job_key = ticket.job_key});
}

void join_tcp(Rendezvous& result, const MeetingPoint& point, const RendezvousOptions& options) {
  int port = point.port;
  if (result.rank == 0 && !point.is_hosted) {
    const bool has_key = !options.job_key.empty();
    result.server = std::make_shared<TcpStoreServer>(
        TcpStoreServerOptions{.bind_address = has_key ? "" : point.host, .port = port, .job_key = options.job_key});
    port = result.server->port();
  }
  try {
    result.store = std::make_shared<TcpStore>(
        TcpStoreOptions{.host = point.host, .port = port, .timeout = options.timeout, .job_key = options.job_key});
  } catch (const WireError& error) {
    if (!point.is_hosted) throw;
    throw EnvironmentError(
        fmt::format("{}. Under torchrun, set TUTTI_STORE_PORT to a free port of the host of rank 0: "
                    "rank 0 then serves there",
                    error.what()));
  }
}

Rendezvous from_environment(const InitUrl& url, const RendezvousOptions& options) {
  const std::optional<int> rank = choose(url, "rank", url.rank, options.rank);
  const std::optional<int> size = choose(url, "world_size", url.world_size, options.world_size);
  std::optional<LaunchPlace> place = read_launch_place();
  if (!place) {
    TUTTI_CHECK(rank && size,
                "env://: this process was started by no launcher: RANK and WORLD_SIZE are not set, nor those of MPI or "
                "Slurm. Start it with tutti launch, torchrun, mpirun or srun, or give rank and world size");
    place = LaunchPlace{.rank = *rank, .world_size = *size, .launcher = "the caller"};
  }
  TUTTI_CHECK(rank.value_or(place->rank) == place->rank && size.value_or(place->world_size) == place->world_size,
              "env://: the caller says rank {} of {}, {} says rank {} of {}; drop one", rank.value_or(place->rank),
              size.value_or(place->world_size), place->launcher, place->rank, place->world_size);
  check_place(url.text, place->rank, place->world_size);
  Rendezvous result{.rank = place->rank,
                    .world_size = place->world_size,
                    .local_rank = place->local_rank,
                    .local_world_size = place->local_world_size};
  const MeetingPoint point = read_meeting_point(*place);
  if (point.rank_variable) join_local(result, point, options);
  else join_tcp(result, point, options);
  return result;
}

}  // namespace

Rendezvous find_store(const std::string& text, const RendezvousOptions& options) {
  const InitUrl url = parse_init_url(text);
  if (url.scheme == "env") return from_environment(url, options);
  const std::optional<int> rank = choose(url, "rank", url.rank, options.rank);
  const std::optional<int> size = choose(url, "world_size", url.world_size, options.world_size);
  TUTTI_CHECK(rank, "init method '{}': the rank is missing; add rank= to the URL or give it as an argument", text);
  TUTTI_CHECK(size, "init method '{}': the world size is missing; add world_size= to the URL or give it as an argument",
              text);
  check_place(text, *rank, *size);
  Rendezvous result{.rank = *rank, .world_size = *size};
  if (url.scheme == "tcp") {
    join_tcp(result, {.host = url.host, .port = *url.port}, options);
  } else {
    result.store = std::make_shared<FileStore>(url.path, *size, options.timeout);
  }
  return result;
}

}  // namespace tutti::comm

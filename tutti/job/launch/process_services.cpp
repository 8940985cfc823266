#include "tutti/job/distributed.h"
#include "tutti/job/launch/launch_job.h"
#include "tutti/job/rendezvous/find_store.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {

TUTTI_PROCESS_SERVICES(local) = {
    .launch = launch_job,
    .find_store = find_store,
    .connect_store = [](TcpStoreOptions options) -> std::shared_ptr<Store> {
      return std::make_shared<TcpStore>(std::move(options));
    },
    .serve_store = [](TcpStoreServerOptions options) { return std::make_shared<TcpStoreServer>(std::move(options)); },
};

}  // namespace tutti::comm

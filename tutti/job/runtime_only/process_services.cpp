// Ranks as processes in a library without the launcher.
#include "tutti/job/distributed.h"
#include "tutti/job/rendezvous/find_store.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {

TUTTI_PROCESS_SERVICES(ranks) = {
    .launch = nullptr,  // whose only caller, launch/launcher.cpp, is left out
    .find_store = find_store,
    .connect_store = [](TcpStoreOptions options) -> std::shared_ptr<Store> {
      return std::make_shared<TcpStore>(std::move(options));
    },
    .serve_store = [](TcpStoreServerOptions options) { return std::make_shared<TcpStoreServer>(std::move(options)); },
};

}  // namespace tutti::comm

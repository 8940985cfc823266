#include <fmt/format.h>

#include "tutti/job/distributed.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {

std::shared_ptr<Store> connect_store(TcpStoreOptions options) {
  return services_for(fmt::format("the store over TCP, which {}:{} would name,", options.host, options.port))
      .connect_store(std::move(options));
}

std::shared_ptr<TcpStoreServer> serve_store(TcpStoreServerOptions options) {
  return services_for("the server of a store over TCP").serve_store(std::move(options));
}

}  // namespace tutti::comm

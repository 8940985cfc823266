// Whether this build supports ranks in several processes, and what they need of it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti::comm {

class Store;
class TcpStoreServer;
struct LaunchOptions;
struct Rendezvous;
struct RendezvousOptions;
struct TcpStoreOptions;
struct TcpStoreServerOptions;

// The entries to the sources that a build with TUTTI_DISTRIBUTED=OFF does not compile.
struct ProcessServices {
  int (*launch)(const LaunchOptions& options);
  Rendezvous (*find_store)(const std::string& url, const RendezvousOptions& options);
  std::shared_ptr<Store> (*connect_store)(TcpStoreOptions options);
  std::shared_ptr<TcpStoreServer> (*serve_store)(TcpStoreServerOptions options);
};
// One row, or none. The row stands at the beginning of a line of its source; the build makes the table of the sources
// that it compiles.
std::span<const ProcessServices* const> process_services();
#define TUTTI_PROCESS_SERVICES(name)            \
  extern const ProcessServices name##_services; \
  constinit const ProcessServices name##_services

// "" when this build has the launcher, the TCP store, the transports between processes and the GPU engines; else the
// reason why not, and what to do.
std::string_view why_not_distributed();

// "the launcher is left out: this build has TUTTI_DISTRIBUTED=OFF; ..."
[[noreturn]] void throw_left_out(const std::string& what);
// Throws that error where this build has none.
const ProcessServices& services_for(const std::string& what);

}  // namespace tutti::comm

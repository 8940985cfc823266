// Backend: allocates symmetric memory and gives ranks access to each other's.
//
//   native   memory files, passed between the processes of a host (threads of one process work too)    cpu
//   threads  the same memory for ranks that are threads of one process: pointers are shared             cpu
//   cuda     CUDA driver: virtual memory exported as descriptors between the processes of a host        cuda
//   nccl     NCCL >= 2.27: windows of a communicator; signals from 2.29                                 cuda
//   nvshmem  NVSHMEM: the symmetric heap of the whole job                                               cuda
//
// The last three open their library at run time: TUTTI_SYMM_CUDA_LIB, TUTTI_SYMM_NCCL_LIB, TUTTI_SYMM_NVSHMEM_LIB name
// it (a file or a soname); without them the usual soname is tried. There is no fallback to another backend: using a
// feature that a backend lacks is a UsageError naming it and a backend that has the feature.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/device.h"
#include "tutti/core/error.h"
#include "tutti/symm/group.h"

namespace tutti::comm::symm {

using Moment = std::chrono::steady_clock::time_point;

// The library that a backend needs is missing, lacks a function, or is too old. The text names the backend, the
// library, what was found and what is required.
class LibraryError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

struct BackendTraits {
  const char* name;
  DeviceKind device = DeviceKind::cpu;
  bool reaches_processes = true;    // ranks may be processes of one host
  bool reaches_hosts = false;       // ranks may be on several hosts
  bool host_access = true;          // the host may read and write the memory, including that of peers
  bool host_pads = true;            // signals are in memory files of the host; false: the backend has its own, if any
  bool contiguous_view = true;      // the blocks of all ranks can be mapped to one address range
  bool multicast = false;           // one write reaches all ranks in hardware
  bool needs_library = false;       // open() opens a library
  bool needs_communicator = false;  // prepare_group() is collective
};

// Memory of one rank, as mapped in one process. Released with the last reference.
class Block {
 public:
  virtual ~Block() = default;
  std::byte* base = nullptr;  // null: not reachable by load and store
  int64_t nbytes = 0;
};

// A rank's description of itself, which all ranks read before they exchange memory.
struct Peer {
  pid_t pid = 0;
  std::string process;  // a random number of the process: equal for threads of one
  std::string ticket;   // its backend's description of its block (Backend::ticket)
};

// The context of the exchange in one rendezvous. `key` is a prefix in the store for this rendezvous alone.
struct Meeting {
  const SymmGroup& group;
  std::string key;
  Moment deadline;
  std::span<const Peer> peers;
  // Throws when a peer has died or failed. Call it while waiting.
  std::function<void()> look_around;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendTraits& traits() const = 0;

  // Opens the library that the backend needs. May be called repeatedly: it retries after a failure and otherwise does
  // nothing.
  virtual void open() {}
  // Zeroed memory of `nbytes` > 0 with all pages allocated. Not collective. EnvironmentError when there is not enough
  // memory.
  virtual std::shared_ptr<Block> allocate(int64_t nbytes, Device device) = 0;
  // A description of the block that other ranks need before they can access it.
  virtual std::string ticket(const Block& block) = 0;
  // Prepares a group before its first exchange. Collective if traits().needs_communicator. May be called repeatedly.
  virtual void prepare_group(const Meeting&) {}
  // Collective: element r of the result is the block of rank r, including this rank's own. Throws on all ranks, or only
  // on the ranks concerned; the caller makes sure that all ranks then release the blocks they got.
  virtual std::vector<std::shared_ptr<Block>> exchange(const Meeting& meeting, const std::shared_ptr<Block>& own) = 0;
  // Waits until all work started on the device is done.
  virtual void synchronize(Device) {}

  // Data transfer and signals for backends whose memory the host cannot access. UsageError for other backends.
  virtual void barrier(const SymmGroup& group, int channel, Moment deadline);
  virtual void signal(const SymmGroup& group, int peer, int channel, Moment deadline);
  virtual void wait_signal(const SymmGroup& group, int peer, int channel, Moment deadline);
  virtual void copy(void* target, const void* source, int64_t nbytes, Device device);

 protected:
  [[noreturn]] void unsupported(std::string_view what) const;
};

// One that this build has. The source that holds it has a row at the beginning of a line, in namespace
// tutti::comm::symm; the build makes the table of the rows in the sources that it compiles.
struct BackendEngine {
  const char* name;
  std::unique_ptr<Backend> (*make)();
};
std::span<const BackendEngine* const> backend_engines();
#define TUTTI_SYMM_BACKEND(name, Class)                                           \
  extern const BackendEngine backend_engine_##name;                               \
  constinit const BackendEngine backend_engine_##name {                           \
    #name, []() -> std::unique_ptr<Backend> { return std::make_unique<Class>(); } \
  }

// The names of all backends in alphabetical order, whether or not their libraries are installed.
std::vector<std::string> backend_names();
// UsageError, listing the names, for an unknown one, and for one that is not part of this build.
Backend& find_backend(std::string_view name);
// TUTTI_SYMM_BACKEND, else "native" ("threads" in a build without TUTTI_DISTRIBUTED). UsageError when the variable
// holds an unknown name.
std::string default_backend_name();
// Whether one write can reach all ranks in hardware. Never throws; false when this is unknown.
bool has_multicast_support(Device device) noexcept;

}  // namespace tutti::comm::symm

// Backend: where symmetric memory comes from and how ranks reach each other's.
//
//   native   memory files, passed between the processes of a host (threads of one process work too)    cpu
//   threads  the same memory for ranks that are threads of one process: pointers are shared             cpu
//   cuda     CUDA driver: virtual memory exported as descriptors between the processes of a host        cuda
//   nccl     NCCL >= 2.27: windows of a communicator; signals from 2.29                                 cuda
//   nvshmem  NVSHMEM: the symmetric heap of the whole job                                               cuda
//
// The last three open their library at run time: TUTTI_SYMM_CUDA_LIB, TUTTI_SYMM_NCCL_LIB, TUTTI_SYMM_NVSHMEM_LIB name it
// (a file or a soname); without them the usual soname is tried. Nothing here falls back to another backend: what a
// backend lacks is a UsageError naming it and one that has it.
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

#include "tutti/comm/symm/group.h"
#include "tutti/core/device.h"
#include "tutti/core/error.h"

namespace tutti::comm::symm {

using Moment = std::chrono::steady_clock::time_point;

// The library that a backend needs is not there, lacks a function, or is too old. The text names the backend, the
// library, what was found and what is required.
class LibraryError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

struct BackendTraits {
  const char* name;
  DeviceKind device = DeviceKind::cpu;
  bool reaches_processes = true;   // ranks may be processes of one host
  bool reaches_hosts = false;      // ranks may be on several hosts
  bool host_access = true;         // the host may read and write the memory, peers' included
  bool host_pads = true;           // signals lie in memory files of the host; false: the backend's own, if any
  bool contiguous_view = true;     // the blocks of all ranks in one range of addresses
  bool multicast = false;          // one write reaches all ranks in hardware
  bool needs_library = false;      // open() opens one
  bool needs_communicator = false; // prepare_group() is collective
};

// Memory of one rank, as one process sees it. Gone with the last reference.
class Block {
 public:
  virtual ~Block() = default;
  std::byte* base = nullptr;  // null: not reachable by load and store
  int64_t nbytes = 0;
};

// Who the ranks are, as far as they told each other before they exchange memory.
struct Peer {
  pid_t pid = 0;
  std::string process;  // a random number of the process: equal for threads of one
  std::string ticket;   // what its backend said about its block (Backend::ticket)
};

// What the exchange of one rendezvous may use. `key` is the rendezvous' own prefix in the store.
struct Meeting {
  const SymmGroup& group;
  std::string key;
  Moment deadline;
  std::span<const Peer> peers;
  // Throws when a peer has died or failed. To be called while waiting.
  std::function<void()> look_around;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendTraits& traits() const = 0;

  // Opens what the backend needs. Any number of times: what has succeeded is not repeated, what failed is tried again.
  virtual void open() {}
  // Zeroed memory of `nbytes` > 0, with every page there already. Not collective. EnvironmentError when there is none.
  virtual std::shared_ptr<Block> allocate(int64_t nbytes, Device device) = 0;
  // What the others need to know beforehand to reach the block.
  virtual std::string ticket(const Block& block) = 0;
  // What the group needs once, before its first exchange. Collective when traits().needs_communicator. Any number of times.
  virtual void prepare_group(const Meeting&) {}
  // Collective: element r is the block of rank r, the own one among them. Throws on all ranks, or on the ranks concerned;
  // the caller sees to it that all ranks drop what they got.
  virtual std::vector<std::shared_ptr<Block>> exchange(const Meeting& meeting, const std::shared_ptr<Block>& own) = 0;
  // Waits until everything that was started on the device is done.
  virtual void synchronize(Device) {}

  // Data and signals of backends whose memory the host cannot touch. UsageError on those that it can.
  virtual void barrier(const SymmGroup& group, int channel, Moment deadline);
  virtual void signal(const SymmGroup& group, int peer, int channel, Moment deadline);
  virtual void wait_signal(const SymmGroup& group, int peer, int channel, Moment deadline);
  virtual void copy(void* target, const void* source, int64_t nbytes, Device device);

 protected:
  [[noreturn]] void unsupported(std::string_view what) const;
};

// In alphabetical order; all are legal whether or not their libraries are installed.
std::vector<std::string> backend_names();
// UsageError listing the legal names.
Backend& find_backend(std::string_view name);
// TUTTI_SYMM_BACKEND, else "native" ("threads" in a build without processes). UsageError when the variable holds no legal name.
std::string default_backend_name();
// Whether one write can reach all ranks in hardware. Never throws: false where nothing is known.
bool has_multicast_support(Device device) noexcept;

}  // namespace tutti::comm::symm

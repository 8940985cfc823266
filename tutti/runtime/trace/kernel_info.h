// What a kernel or a call of a library is made of: written once when it is made, carried by all its events.
//
// The compiler fills every field; eager kernels are one op each.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/runtime/trace/trace_context.h"

namespace tutti {

struct KernelOp {
  std::string name;
  int64_t node = -1;  // in its graph; -1: eager
};

struct KernelInfo {
  std::string kernel_id;             // unique: readable names of its ops and a hash
  std::string graph_key = "eager";   // the compiled graph it belongs to
  std::vector<KernelOp> ops;         // that it was made from, in their order
  // User source lines, module and phase of those ops. Absent: those of the running code when the kernel is called.
  std::vector<std::string> stack;
  std::string module_path;
  std::optional<TracePhase> phase;
  // Of one call, where sizes are fixed; a call that knows better says so in its event.
  double bytes = 0, flops = 0;
  std::string choice;          // which of several ways: an extern library, a tile, a transport
  std::string specialization;  // sizes or symbols that it was made for: "s0=128"
};

// A KernelInfo that lives as long as the process, with the number of its calls under a session.
struct TraceKernel {
  explicit TraceKernel(KernelInfo info) : info(std::move(info)) {}
  const KernelInfo info;
  mutable std::atomic<int64_t> calls{0};
};

// The one TraceKernel of these facts; equal facts give the same object. Any thread; takes a lock and allocates, so keep
// the result. Throws std::bad_alloc only.
const TraceKernel& intern_kernel(const KernelInfo& info);

}  // namespace tutti

// The provenance of a kernel or library call: recorded once when it is created, and attached to all its events.
//
// The compiler fills in every field; eager kernels consist of one op each.
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
  int64_t node = -1;  // index in its graph; -1: eager
};

struct KernelInfo {
  std::string kernel_id;            // unique: readable names of its ops and a hash
  std::string graph_key = "eager";  // the compiled graph it belongs to
  std::vector<KernelOp> ops;        // the ops it was made from, in order
  // User source lines, module and phase of these ops. If not set, those of the running code when the kernel is called.
  std::vector<std::string> stack;
  std::string module_path;
  std::optional<TracePhase> phase;
  // Work of one call if sizes are fixed; the event of a call can override it.
  double bytes = 0, flops = 0;
  std::string choice;          // the variant chosen: an external library, a tile, a transport
  std::string specialization;  // the sizes or symbols that it was compiled for: "s0=128"
};

// A KernelInfo that lives as long as the process, with the number of its calls during sessions.
struct TraceKernel {
  explicit TraceKernel(KernelInfo info) : info(std::move(info)) {}
  const KernelInfo info;
  mutable std::atomic<int64_t> calls{0};
};

// The TraceKernel for `info`; equal infos give the same object. May be called by any thread; takes a lock and
// allocates, so keep the result. Throws only std::bad_alloc.
const TraceKernel& intern_kernel(const KernelInfo& info);

}  // namespace tutti

// The event of an eager call's kernel: generated code, or the extern kernel of the op.
#pragma once

#include <string>

#include "tutti/ops/engine/op_def.h"
#include "tutti/runtime/function_ref.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti {

// Lives around the run of the kernel. Belongs to its thread; `call` must outlive it. While no session runs it costs one
// relaxed load.
class KernelTrace {
 public:
  // compiled: what is known of a call that runs more than its op; what the kernel notes adds to its choice.
  explicit KernelTrace(const OpCall& call, const TraceKernel* compiled = nullptr) noexcept {
    if (TraceRecorder::is_on()) [[unlikely]]
      begin(call, compiled);
  }
  ~KernelTrace() {
    if (call_ != nullptr) [[unlikely]]
      end();
  }
  KernelTrace(const KernelTrace&) = delete;
  KernelTrace& operator=(const KernelTrace&) = delete;

  // The call under way on this thread runs `kernel`.
  static void note(const TraceKernel& kernel) noexcept {
    if (TraceRecorder::is_on()) [[unlikely]]
      noted = &kernel;
  }
  // The same for an extern kernel that chooses between ways; `choice` says which it took, and is called under a session
  // only.
  static void note_extern(const OpDef& op, FunctionRef<std::string()> choice) {
    if (TraceRecorder::is_on()) [[unlikely]]
      noted = &describe_extern(op, choice());
  }
  static const TraceKernel& describe_extern(const OpDef& op, const std::string& choice);

 private:
  static inline constinit thread_local const TraceKernel* noted = nullptr;
  void begin(const OpCall& call, const TraceKernel* compiled) noexcept;
  void end() noexcept;

  const OpCall* call_ = nullptr;
  const TraceKernel* compiled_ = nullptr;
  const TraceKernel* outer_ = nullptr;  // of the call around
  int64_t begin_ns_ = 0;
};

// The description of the kernel of `spec`, which was made for `op`.
const TraceKernel& describe_generated(const OpDef& op, const codegen::KernelSpec& spec);

}  // namespace tutti

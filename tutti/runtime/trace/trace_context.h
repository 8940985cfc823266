// Where the running code stands: the phase of training, the module, the source lines. Events carry it.
//
// The context belongs to a thread; workers of a pool have that of the loop they help with (thread_pool.h). Places are
// kept once per process and never freed: an event holds a pointer.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class TracePhase : uint8_t { forward, backward, optimizer };
// "fwd", "bwd", "opt".
std::string_view name_of(TracePhase phase);

struct TracePlace {
  std::string module_path;         // "model.layers.3.mlp"
  std::vector<std::string> stack;  // source lines, innermost first: "qwen3.cpp:149 (forward)"
};

// `place` (may be null) with a source line in front of its own; `place` itself when the line is "". Never throws.
const TracePlace* place_with_line(const TracePlace* place, const std::string& line) noexcept;

struct TraceContext {
  TracePhase phase = TracePhase::forward;
  const TracePlace* place = nullptr;  // null: no ModuleScope was opened under a session
  int64_t sequence = -1;              // of the tape node that is recorded or differentiated; -1: none
  int32_t origin = 0;                 // thread id whose loop this worker runs; 0: the thread works for itself
  bool keeps_places = false;          // ModuleScopes are noted without a session, too: what is captured remembers them
  const char* graph_key = nullptr;    // of the compiled graph that runs; kept by intern_trace_name(). null: none

  static TraceContext& current();
};

// `context` is current on this thread while the scope lives.
class TraceContextScope {
 public:
  explicit TraceContextScope(const TraceContext& context) : saved_(TraceContext::current()) { TraceContext::current() = context; }
  ~TraceContextScope() { TraceContext::current() = saved_; }
  TraceContextScope(const TraceContextScope&) = delete;
  TraceContextScope& operator=(const TraceContextScope&) = delete;

 private:
  TraceContext saved_;
};

// What runs on this thread while the scope lives belongs to `phase`.
class PhaseScope {
 public:
  explicit PhaseScope(TracePhase phase) : saved_(TraceContext::current().phase) { TraceContext::current().phase = phase; }
  ~PhaseScope() { TraceContext::current().phase = saved_; }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  TracePhase saved_;
};

// Ops of this thread belong to node `sequence` of the tape while the scope lives.
class SequenceScope {
 public:
  explicit SequenceScope(int64_t sequence) : saved_(TraceContext::current().sequence) { TraceContext::current().sequence = sequence; }
  ~SequenceScope() { TraceContext::current().sequence = saved_; }
  SequenceScope(const SequenceScope&) = delete;
  SequenceScope& operator=(const SequenceScope&) = delete;

 private:
  int64_t saved_;
};

// Ops called while the scope lives belong to the module `name` inside that of the scope around, and to the source line
// that opened it. Costs one look at a flag while nobody profiles; never throws.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name, std::source_location where = std::source_location::current()) noexcept
      : ModuleScope(name, -1, where) {}
  // The module `name`.`index`.
  ModuleScope(std::string_view name, int64_t index, std::source_location where = std::source_location::current()) noexcept;
  ~ModuleScope() { TraceContext::current().place = saved_; }
  // The module beside it: what comes until the end of the scope belongs to `name`.
  void next(std::string_view name, std::source_location where = std::source_location::current()) noexcept { enter(name, -1, where); }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  void enter(std::string_view name, int64_t index, const std::source_location& where) noexcept;
  const TracePlace* saved_;
};

namespace detail {
inline constinit thread_local TraceContext trace_context;
}
inline TraceContext& TraceContext::current() { return detail::trace_context; }

}  // namespace tutti

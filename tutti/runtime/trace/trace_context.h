// TraceContext: the phase of training, the module and the source lines of the running code, which are attached to
// events.
//
// Each thread has a context; pool workers use the context of the loop they work on (thread_pool.h). Places are
// stored once per process and never freed, because events refer to them by pointer.
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

// `place` (may be null) with `line` added before its own source lines; `place` itself when the line is "". Never
// throws.
const TracePlace* place_with_line(const TracePlace* place, const std::string& line) noexcept;

struct TraceContext {
  TracePhase phase = TracePhase::forward;
  const TracePlace* place = nullptr;  // null: no ModuleScope was opened during a session
  int64_t sequence = -1;              // number of the tape node that is being recorded or differentiated; -1: none
  int32_t origin = 0;                 // id of the thread whose loop this worker runs; 0: none
  bool keeps_places = false;          // ModuleScopes are recorded even without a session, for captured graphs
  const char* graph_key = nullptr;    // key of the compiled graph that is running, from intern_trace_name(); null: none

  static TraceContext& current();
};

// Makes `context` current on this thread while the scope lives.
class TraceContextScope {
 public:
  explicit TraceContextScope(const TraceContext& context) : saved_(TraceContext::current()) {
    TraceContext::current() = context;
  }
  ~TraceContextScope() { TraceContext::current() = saved_; }
  TraceContextScope(const TraceContextScope&) = delete;
  TraceContextScope& operator=(const TraceContextScope&) = delete;

 private:
  TraceContext saved_;
};

// Code that runs on this thread while the scope lives belongs to `phase`.
class PhaseScope {
 public:
  explicit PhaseScope(TracePhase phase) : saved_(TraceContext::current().phase) {
    TraceContext::current().phase = phase;
  }
  ~PhaseScope() { TraceContext::current().phase = saved_; }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  TracePhase saved_;
};

// Ops that run on this thread while the scope lives belong to node `sequence` of the tape.
class SequenceScope {
 public:
  explicit SequenceScope(int64_t sequence) : saved_(TraceContext::current().sequence) {
    TraceContext::current().sequence = sequence;
  }
  ~SequenceScope() { TraceContext::current().sequence = saved_; }
  SequenceScope(const SequenceScope&) = delete;
  SequenceScope& operator=(const SequenceScope&) = delete;

 private:
  int64_t saved_;
};

// Ops called while the scope lives belong to the module `name` inside that of the enclosing scope, and to the source
// line that opened the scope (none if `where` has no line). Costs one test of a flag when no profiler session runs;
// never throws.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name, std::source_location where = std::source_location::current()) noexcept
      : ModuleScope(name, -1, where) {}
  // The module `name`.`index`.
  ModuleScope(std::string_view name, int64_t index,
              std::source_location where = std::source_location::current()) noexcept;
  ~ModuleScope() { TraceContext::current().place = saved_; }
  // Switches to a sibling module: from now on until the end of the scope, ops belong to `name`.
  void next(std::string_view name, std::source_location where = std::source_location::current()) noexcept {
    enter(name, -1, where);
  }
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

// The pipeline: the list of the passes that turn a captured graph into steps.
//
// A new pass is a file pair beside this one and a row of the table in pipeline.cpp. Every pass has the same signature:
// it finds what it needs in the PassState and leaves its result there.
//
// Three kinds of work on graphs stand outside of the list:
//   - What turns a traced function into the graphs of its forward and backward (graph/joint.h): partition() with a
//     BackwardPart, without_undefined() and add_cotangents() are called with what only the trace knows, and the graphs
//     that they give are captured graphs, which begin here.
//   - What a call of the executable needs to know (Executable::plan_...): waits, lifetimes and uses are facts about the
//     finished steps and change none of them. plan_memory() lays out lifetimes and knows no graph.
//   - Machine code, which compile_kernels() makes of the specifications in the steps, on many threads.
#pragma once

#include <span>

#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {

struct Pass {
  // The form that the pass works toward, which is checked and dumped after it.
  enum class Form : uint8_t {
    graph,   // nodes in program order
    groups,  // nodes that run as one step together
    steps,   // what is run
  };
  const char* name;  // that of the function
  Form form;
  void (*run)(PassState&);
  bool (*when)(const PassState&) = nullptr;  // absent: always
};

// The passes in their order.
std::span<const Pass> pipeline();

// Whether what each pass leaves behind is checked: TUTTI_CHECK_PASSES=1.
bool checks_passes();

// Runs the passes on state.graph. With `checked`, the state is checked after each of them (pass_check.h), and an
// InternalError names the pass whose result is not legal. Dumps the stages "captured", "simplified" and "steps", and
// after each pass that TUTTI_COMPILE_DUMP_PASSES names (names with commas between them, or "all") a stage of its name.
void run_passes(PassState& state, std::span<const Pass> passes = pipeline(), bool checked = checks_passes());

}  // namespace tutti::graph

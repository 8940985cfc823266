// What was compiled, in words.
#include <algorithm>

#include "tutti/graph/compiled_core.h"
#include "tutti/graph/family.h"

namespace tutti::graph {
namespace {

std::string to_string(const Specialization& s) {
  std::string text;
  const auto describe_executable = [&](const char* what, const Executable& e) {
    const ExecutableStatistics& t = e.statistics();
    text += fmt::format(
        "{}: {} ops captured, {} merged, {} unused; {} kernels of {} ops in {} launches, {} calls, {} with prologues "
        "that save {:.0f} bytes, {} with epilogues that save {:.0f} bytes; "
        "{} collectives in another's call, {} products in that of a collective, {} started early, {} siblings in "
        "another's "
        "call; arena {} bytes (side "
        "by side {})\n{}",
        what, t.nodes, t.merged, t.unused, t.kernels, t.fused_nodes, t.launches, t.calls, t.prologues,
        t.prologue_saved_bytes, t.epilogues, t.epilogue_saved_bytes, t.bucketed, t.joined, t.started_early, t.siblings,
        t.arena_bytes, t.unplanned_bytes, e.to_string());
    for (const std::string& line : t.apart) text += "apart: " + line + "\n";
  };
  if (s.partition.read_bytes > 0) {
    text += fmt::format("the backward reads {} bytes of the forward; {} are kept, {} ops run again for the rest\n",
                        s.partition.read_bytes, s.partition.kept_bytes, s.partition.recomputed);
  }
  describe_executable("forward", *s.forward);
  if (s.backward) describe_executable("backward", *s.backward->executable);
  if (!s.continuations) return text;
  text += fmt::format("then it reads {}{}\n", graph::to_string(s.forward->graph().results[0]),
                      s.read_at.empty() ? "" : " at " + s.read_at);
  for (const Continuations::Entry& e : s.continuations->entries()) {
    text += fmt::format("  after {}:\n{}", tutti::to_string(e.value), indented(to_string(*e.next), "    "));
  }
  return text;
}

}  // namespace

CompileStatistics CompiledCore::statistics() const {
  std::shared_lock lock(mutex_);
  return statistics_;
}

std::string CompiledCore::explain() const {
  std::shared_lock lock(mutex_);
  std::string text =
      fmt::format("'{}': traced {} times, {} specializations\n", options_.name, traces_, entries_.size());
  for (size_t i = 0; i < reasons_.size(); ++i) text += fmt::format("trace {}: {}\n", i, reasons_[i]);
  for (size_t i = 0; i < families_.size(); ++i)
    text += fmt::format("family {} of sizes:\n{}", i, families_[i]->to_string());
  for (const std::string& f : fixed_) text += fmt::format("no symbols: {}\n", f);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Specialization& s = *entries_[i].specialization;
    const auto family = std::find(families_.begin(), families_.end(), entries_[i].family);
    text += fmt::format("specialization {}{}\n", i,
                        family == families_.end() ? "" : fmt::format(" of family {}", family - families_.begin()));
    text += to_string(s);
  }
  return text;
}

}  // namespace tutti::graph

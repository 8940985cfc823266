// Shared parts of the passes that attach kernels to adjacent calls as prologues and epilogues.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/passes/fuse.h"

namespace tutti::graph {

// The decision of such a pass.
struct AttachPlan {
  std::vector<Group> groups;       // in an order in which they can run
  double saved_bytes = 0;          // that no longer move
  std::vector<std::string> apart;  // per kernel that stays apart although it stands beside such a call: which, and why
};

// Takes over the groups and the reasons of a plan; returns the bytes that it saves.
double carry_out(AttachPlan plan, PassState& state);

// Groups while some of them go into others: those are left empty.
class AttachedGroups {
 public:
  AttachedGroups(const Graph& graph, std::vector<Group> groups);

  size_t size() const { return groups_.size(); }
  Group& operator[](int32_t g) { return groups_[static_cast<size_t>(g)]; }
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  const Node& call_of(int32_t g) { return node((*this)[g].nodes[0]); }
  // Nodes that must run before n.
  const std::vector<int32_t>& before(int32_t n) const { return before_[static_cast<size_t>(n)]; }
  // The group that node n is in, or is attached to.
  int32_t group_of(int32_t n) const { return group_of_[static_cast<size_t>(n)]; }
  // The groups, as they came, that read or write the buffer.
  const std::vector<int32_t>& touching(int32_t buffer) const { return touched_by_[static_cast<size_t>(buffer)]; }
  // Whether the buffer is there before or after the call.
  bool is_outside(int32_t buffer) const { return is_outside_[static_cast<size_t>(buffer)]; }

  // Whether anything but the groups g and h reads or writes the buffer, the caller of the graph included.
  bool has_others(int32_t buffer, int32_t g, int32_t h) const;
  // Whether the kernel writes memory that `values` of a call lie in.
  bool writes_into(const Group& kernel, const std::vector<Value>& values) const;
  // Whether some other group must run after `from` and before `to`.
  bool leads_through_others(int32_t from, int32_t to);
  // Whether the call can work beside kernels on parts of its operands.
  static bool works_in_blocks(const Node& node);
  // Whether an op of the kernel looks at its operands before it runs.
  bool looks_before(const Group& kernel) const;
  std::string ops_of(const Group& kernel) const;

  // Takes kernel g, which is part of `call` from now on.
  Group take(int32_t g, int32_t call);
  // Without those that were taken.
  std::vector<Group> in_order() &&;

 private:
  const Graph& graph_;
  std::vector<Group> groups_;
  const std::vector<std::vector<int32_t>> before_;
  std::vector<std::vector<int32_t>> after_;
  std::vector<int32_t> group_of_;
  std::vector<std::vector<int32_t>> touched_by_;
  std::vector<bool> is_outside_;
};

}  // namespace tutti::graph

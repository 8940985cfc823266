// Where a rank stands in the mesh of a layout, and its side of every group.
#pragma once

#include "tests/layouts/support/axis.h"
#include "tests/layouts/support/config.h"
#include "tutti/core/tree_cut.h"

namespace tutti::layouts {

struct Place {
  // Makes the groups of all axes. UsageError, before that, when the layout cuts shards or tokens anywhere but on a
  // border.
  Place(comm::ProcessGroup& world, const Layout& layout, const RunConfig& run);

  Layout layout;
  Axis tp, cp, fsdp, dp, data, pp;
  Axis ep;           // neighbours of the data axis that hold different experts
  Axis expert_data;  // ranks of the data axis that hold the same experts

  // Canonical tokens of a shard: those of this rank's context part, and of its sequence part inside that.
  TreeCut context_part{0, 0}, sequence_part{0, 0};
  int64_t local_tokens() const { return layout.sequence ? sequence_part.size() : context_part.size(); }

  // The ranks over which a parameter's storage is cut; null when it is not.
  const Axis* storage_axis(bool of_expert) const {
    const Axis& axis = of_expert ? expert_data : fsdp;
    return fsdp.size() > 1 && axis.size() > 1 ? &axis : nullptr;
  }
  bool first_stage() const { return pp.rank() == 0; }
  bool last_stage() const { return pp.rank() + 1 == pp.size(); }
};

// The flat elements of a parameter that a rank stores. Storage may be cut anywhere (N11): into equal parts, the last
// ones shorter.
int64_t largest_storage_part(int64_t numel, int ranks);
TreeCut storage_part(int64_t numel, int rank, int ranks);

}  // namespace tutti::layouts

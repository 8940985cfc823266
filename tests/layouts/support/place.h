// Where a rank stands in the mesh of a layout, and its side of every group.
#pragma once

#include <memory>

#include "tests/layouts/support/axis.h"
#include "tests/layouts/support/config.h"
#include "tutti/core/tree_cut.h"

namespace tutti::layouts {

struct Place {
  Place(World& world, const Layout& layout, const RunConfig& run, int rank);

  Layout layout;
  Axis tp, cp, fsdp, dp, data, pp;
  Axis ep;           // neighbours of the data axis that hold different experts
  Axis expert_data;  // ranks of the data axis that hold the same experts
  std::shared_ptr<Mailbox> activations_in, activations_out, gradients_in, gradients_out;  // of the pipeline

  // Canonical tokens of a shard: those of this rank's context part, and of its sequence part inside that.
  TreeCut context_part, sequence_part;
  int64_t local_tokens() const { return layout.sequence ? sequence_part.size() : context_part.size(); }
  // First token of each tp rank inside the context part, and the end.
  std::vector<int64_t> sequence_begins;

  // The ranks over which a parameter's storage is cut; null when it is not.
  const Axis* storage_axis(bool of_expert) const {
    const Axis& axis = of_expert ? expert_data : fsdp;
    return fsdp.size() > 1 && axis.size() > 1 ? &axis : nullptr;
  }
  bool first_stage() const { return pp.rank() == 0; }
  bool last_stage() const { return pp.rank() + 1 == pp.size(); }
  double wire_bytes() const;
};

}  // namespace tutti::layouts

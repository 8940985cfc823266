// Training a tiny model on the ranks of a layout.
#pragma once

#include "tests/layouts/support/record.h"

namespace tutti::comm {
class ProcessGroup;
}  // namespace tutti::comm

namespace tutti::layouts {

// Trains this rank's part and returns its record. `world` has as many ranks as the layout. UsageError when the layout
// cuts a tree anywhere but on a border.
RankRecord train_rank(const ModelConfig& config, const RunConfig& run, const Layout& layout, comm::ProcessGroup& world);

}  // namespace tutti::layouts

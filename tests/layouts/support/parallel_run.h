// Training a tiny model on the ranks of a layout.
#pragma once

#include <vector>

#include "tests/layouts/support/record.h"

namespace tutti::layouts {

// One record per rank; ranks are threads. UsageError when the layout cuts a tree anywhere but on a border.
std::vector<RankRecord> run_layout(const ModelConfig& config, const RunConfig& run, const Layout& layout);

}  // namespace tutti::layouts

// The reference: the tiny models on one rank, written with plain ops on whole tensors.
#pragma once

#include "tests/layouts/support/record.h"

namespace tutti::layouts {

RankRecord run_one_rank(const ModelConfig& config, const RunConfig& run);

}  // namespace tutti::layouts

// Context parallel attention that meets the keys of one rank at a time.
#pragma once

#include "tests/layouts/support/place.h"

namespace tutti::layouts {

// As context_parallel_attention, but keys and values visit in the order of a ring: this rank's own chunks first, then
// those of the next rank, and so on. Of each chunk the maximal aligned nodes are kept, and combined by key (N10).
Tensor ring_attention(const Place& place, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                      const std::vector<int64_t>& positions);

}  // namespace tutti::layouts

// Inputs that overlap the outputs of a call.
#pragma once

#include <span>
#include <vector>

#include "tutti/comm/transport.h"

namespace tutti::comm {

// Bytes that a call writes.
struct WrittenRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool meets(const ConstBlock& block) const {
    return block.bytes > 0 && block.data < end && begin < block.data + block.bytes;
  }
};

// A peer may read an offer in place while this rank is already writing data from others. So a block that overlaps a
// written range is first copied to `copies`, which lives as long as the exchange, and offered from there.
void offer_a_copy(ConstBlock& block, std::vector<std::vector<std::byte>>& copies);

}  // namespace tutti::comm

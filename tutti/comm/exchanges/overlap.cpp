#include "tutti/comm/exchanges/overlap.h"

namespace tutti::comm {

void offer_a_copy(ConstBlock& block, std::vector<std::vector<std::byte>>& copies) {
  copies.emplace_back(block.data, block.data + block.bytes);
  block.data = copies.back().data();
}

}  // namespace tutti::comm

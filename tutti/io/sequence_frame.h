// The ids that a tokenizer.json puts around a text (its post-processor), such as BOS before it.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

struct SequenceFrame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;

  bool is_empty() const { return before.empty() && after.empty(); }
};

}  // namespace tutti

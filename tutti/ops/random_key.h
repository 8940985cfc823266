// RandomKey: which random numbers a draw gets. A draw is a pure function of its key (numerics contract, N6).
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/core/shape.h"

namespace tutti {

// Element i of a draw takes word index % 4 of the Philox block index / 4, where index is the element's position in the
// whole tensor. So a part of a tensor that is drawn by itself has the bits of the whole, however it is cut.
struct RandomKey {
  uint64_t key = 0;
  uint32_t step = 0;           // of the training run
  uint32_t virtual_shard = 0;  // of the global batch
  int64_t first_index = 0;     // of element 0
  // A part cut along an inner dim: its elements lie in the whole as runs of `run_length`, `run_stride` apart.
  int64_t run_length = 0;  // 0: one run
  int64_t run_stride = 0;

  // Position in the whole tensor of element i of this part.
  int64_t index_of(int64_t i) const {
    return first_index + (run_length == 0 ? i : i / run_length * run_stride + i % run_length);
  }
};

// The key of call number `ordinal` inside the module `path`, under the rank's seed (seed_all). A parameter is
// initialised with its own name as path and ordinal 0.
RandomKey random_key(std::string_view path, uint64_t ordinal = 0, uint32_t step = 0, uint32_t virtual_shard = 0);

// The next anonymous key of this rank: like random_key, in the order of calls.
RandomKey next_random_key();

// Who gives a thread its anonymous keys instead of the rank: a trace, whose calls draw them later.
class KeySource {
 public:
  virtual RandomKey next_key() = 0;
  // The one of this thread becomes `source`, null: the rank's; gives the one before.
  static KeySource* set_current(KeySource* source);

 protected:
  ~KeySource() = default;
};

// The key by which the part [offsets, offsets + part) of a tensor of `sizes` is drawn by itself.
// Error: the part is cut along two dims inside another one, so that its runs are not evenly apart.
RandomKey part_of(const RandomKey& whole, const Extents& sizes, const Extents& part, const Extents& offsets);

}  // namespace tutti

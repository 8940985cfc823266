// The results of a run, to be compared bit by bit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/layouts/support/parameters.h"
#include "tutti/runtime/allocator.h"

namespace tutti::layouts {

struct StepRecord {
  float loss = 0, norm = 0;
  std::map<std::string, Tensor> grads;
};

// The work of a rank, beside what the layout should cost.
struct Usage {
  double flops = 0, planned_flops = 0;
  double wire_bytes = 0, planned_wire_bytes = 0;
  int64_t parameter_bytes = 0, planned_parameter_bytes = 0;  // at rest
  int64_t optimizer_bytes = 0;
  MemoryStatistics memory;
  int64_t peak_parameter_bytes() const {
    return memory.at_peak_by_category[static_cast<size_t>(MemoryCategory::parameters)];
  }
};

struct RankRecord {
  std::vector<StepRecord> steps;
  std::map<std::string, Tensor> weights;
  // The part of a parameter that this rank holds: of the dim cut over tp, then of the flattened rest.
  struct Piece {
    int tp_dim = -1;
    TreeCut tp{0, 0};
    int64_t flat_begin = 0, flat_end = 0;
  };
  std::map<std::string, Piece> pieces;
  Usage usage;
};

}  // namespace tutti::layouts

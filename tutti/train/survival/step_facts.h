// The record of a step: where the run stands when the step is committed, and what is needed to apply it.
#pragma once

#include <cstdint>

namespace tutti::train {

struct StepFacts {
  int64_t step = 0, next_row = 0, items_seen = 0, optimizer_steps = 0;
  double lr = 0, grad_scale = 1;
  double loss = 0, grad_norm = 0;                // of a float each
  double step_ms = 0, data_ms = 0, comm_ms = 0;  // until it was prepared
  int64_t is_computed = 0;                       // 0: the values with which the run began, which no step has computed
};

}  // namespace tutti::train

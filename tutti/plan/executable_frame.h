// The memory of one call of an executable; for its own source files.
#pragma once

#include "tutti/plan/executable.h"

namespace tutti::graph {

// The data of one call.
struct Executable::Frame {
  Tensor arena;
  std::vector<char*> bases;         // per buffer
  std::vector<GivenMemory> memory;  // per buffer: the storage and where the buffer begins in it
  struct Call {
    std::vector<Tensor> inputs, outputs;  // undefined where the memory is another one in each call
    std::vector<Tensor> kept_inputs, kept_outputs;
  };
  std::vector<Call> calls;  // per step
  std::span<const RandomKey> keys;
};

// When memory is asked for and given back, for one set of lenders.
struct Executable::Loans {
  std::vector<std::pair<MemoryLender*, bool>> lenders;  // per buffer, and whether they take memory back
  struct Step {
    std::vector<MemoryLender*> lend;                        // before it
    std::vector<int32_t> find;                              // the buffers whose memory is another one then
    std::vector<std::pair<MemoryLender*, bool>> take_back;  // after it; whether they are used again
  };
  std::vector<Step> steps;  // the last one stands for the end
};

}  // namespace tutti::graph

// The memory of one call of an executable; for its own source files.
#pragma once

#include "tutti/graph/executable.h"

namespace tutti::graph {

// The data of one call.
struct Executable::Frame {
  Tensor arena;
  std::vector<char*> bases;            // per buffer
  std::vector<GivenMemory> memory;     // per buffer: the storage and where the buffer begins in it
  struct Call {
    std::vector<Tensor> inputs, outputs;  // undefined where the memory is another one in each call
    std::vector<Tensor> kept_inputs, kept_outputs;
  };
  std::vector<Call> calls;             // per step
  std::span<const RandomKey> keys;
};

}  // namespace tutti::graph

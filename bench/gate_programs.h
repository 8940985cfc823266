// Programs that are run op by op and compiled by `tutti bench compile --gate`, each with its arguments.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::bench {

using Tensors = std::vector<Tensor>;

struct GateProgram {
  std::string name;
  Tensors arguments;  // some require gradients; some may be written
  std::function<Tensors(const Tensors&)> run;
};

// Adds programs to a list. Their arguments have the same values at each call.
class GateList {
 public:
  explicit GateList(std::vector<GateProgram>& programs) : programs_(programs) {}

  void add(std::string name, Tensors arguments, std::function<Tensors(const Tensors&)> run) {
    programs_.push_back({std::move(name), std::move(arguments), std::move(run)});
  }
  // The results of run() and the gradients of their sum with respect to all arguments that are floats.
  void add_with_gradients(std::string name, Tensors arguments, std::function<Tensor(const Tensors&)> run);

 private:
  std::vector<GateProgram>& programs_;
};

// Deterministic numbers from -2 to 2, divided by the root of the first size where they are a layer's weight.
Tensor gate_numbers(const Extents& sizes);
Tensor gate_weight(const Extents& sizes);
// Whole numbers below `limit`.
Tensor gate_indices(const Extents& sizes, int64_t limit);

void add_pointwise_programs(GateList& list);  // arithmetic and rows, small and large
void add_layer_programs(GateList& list);      // layers as published models write them, forward
void add_training_programs(GateList& list);   // losses, layers with gradients, optimizer steps

std::vector<GateProgram> gate_programs();

}  // namespace tutti::bench

#include "bench/gate_programs.h"

#include <cmath>

#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"

namespace tutti::bench {

Tensor gate_numbers(const Extents& sizes) { return uniform(to_shape(sizes), random_key("gate"), -2.0, 2.0); }

Tensor gate_weight(const Extents& sizes) {
  return mul(gate_numbers(sizes), 1.0 / std::sqrt(static_cast<double>(sizes.back())));
}

Tensor gate_indices(const Extents& sizes, int64_t limit) {
  return randint(0, limit, to_shape(sizes), random_key("gate indices"));
}

void GateList::add_with_gradients(std::string name, Tensors arguments, std::function<Tensor(const Tensors&)> run) {
  for (const Tensor& t : arguments) {
    if (is_floating(t.dtype())) requires_grad_(t);
  }
  add(std::move(name), std::move(arguments), [run = std::move(run)](const Tensors& in) {
    Tensors leaves;
    for (const Tensor& t : in) {
      if (is_floating(t.dtype())) leaves.push_back(t);
    }
    const Tensor results[] = {run(in)};
    Tensors all = grad(results, leaves);
    all.push_back(results[0]);
    return all;
  });
}

std::vector<GateProgram> gate_programs() {
  std::vector<GateProgram> programs;
  GateList list(programs);
  add_pointwise_programs(list);
  add_layer_programs(list);
  add_training_programs(list);
  return programs;
}

}  // namespace tutti::bench

#include "tutti/parallel/distribute_module.h"

#include <utility>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/nn/module_call.h"
#include "tutti/parallel/divided_values.h"

namespace tutti::parallel {

void distribute_module(nn::Module& module, const dist::Mesh& mesh, const PartitionFunction& partition,
                       const InputFunction& input, const OutputFunction& output) {
  std::vector<std::pair<nn::Parameter, Tensor>> placed;
  for (const auto& [name, parameter] : module.named_parameters()) {
    dist::Placements placements = partition ? partition(name, parameter) : dist::Placements();
    try {
      parameter.check_has_values();
      placed.emplace_back(parameter, divided_values(parameter, mesh, placements));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("distribute_module: parameter '{}': {}", name, error.what()));
    }
  }
  for (const auto& [parameter, values] : placed) hold_divided(parameter, values);
  if (input) {
    module.forward_hooks().before(
        [input, mesh](const nn::Module&, std::vector<Tensor>& inputs) { input(inputs, mesh); });
  }
  if (output) {
    module.forward_hooks().after(
        [output, mesh](const nn::Module&, const Tensor& result) { return output(result, mesh); });
  }
}

}  // namespace tutti::parallel

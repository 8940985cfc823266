#include "tutti/parallel/divided_values.h"

namespace tutti::parallel {

Tensor divided_values(const nn::Parameter& parameter, const dist::Mesh& mesh, const dist::Placements& placements) {
  if (!parameter.is_materialized())
    return dist::empty(to_shape(parameter.sizes()), mesh, placements, parameter.dtype());
  return dist::distribute_tensor(parameter.holds_blocks() ? parameter.blocks() : parameter.master(), mesh, placements,
                                 {.src_data_rank = -1, .shares_memory = parameter.is_frozen()});
}

void hold_divided(const nn::Parameter& parameter, const Tensor& values) {
  if (parameter.holds_blocks()) parameter.freeze(values, parameter.block_format());
  else if (parameter.is_frozen()) parameter.freeze(values);
  else parameter.set_master(values);
}

}  // namespace tutti::parallel

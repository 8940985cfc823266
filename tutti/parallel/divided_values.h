// The values of parameters, as numbers or quantized blocks, when ranks divide them.
#pragma once

#include "tutti/dist/dtensor.h"
#include "tutti/nn/parameter.h"

namespace tutti::parallel {

// What the parameter holds, placed on the ranks, all of which have its values: the parts of a frozen one lie in the
// memory of the whole, such as the pages of a file, of which a rank then reads its own. One without values gets memory
// for the part of this rank. The parameter is unchanged.
Tensor divided_values(const nn::Parameter& parameter, const dist::Mesh& mesh, const dist::Placements& placements);

// From now on the parameter holds these; a frozen one stays frozen.
void hold_divided(const nn::Parameter& parameter, const Tensor& values);

}  // namespace tutti::parallel

// Recipes that read or write one operand where the elements of another say (Recipe::pick).
#pragma once

#include <span>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// run_recipe for recipes with a pick.
void run_picked(const OpCall& call, std::span<const Tensor> outputs, const codegen::ParamValue* params);

}  // namespace tutti

// The codes of linear layers (nn/coded_operand.h) when ranks divide them.
#pragma once

#include "tutti/dist/dtensor.h"
#include "tutti/nn/coded_operand.h"

namespace tutti::parallel {

// The codes of a layer, placed on the ranks, all of which have them: with `by_rows` each rank has some of the output
// features, views of the pages of a file if they come from one; else all. Input features are never divided: a row of x
// has one scale, whatever the layout, and sums over codes of f8e4m3fn and over numbers have one order. The layer is
// unchanged. UsageError where they are divided already.
nn::WeightCodes divided_codes(const nn::Linear& layer, const dist::Mesh& mesh, bool by_rows);

}  // namespace tutti::parallel

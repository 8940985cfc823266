// Nodes of several chunks of keys: inputs m, l, o of each; and the result from the node of all keys.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

void infer_nodes(const OpCall& call, OutputMetas& out);
void build_nodes(RecipeBuilder& b);
void reference_nodes(const OpCall& call, std::span<const Tensor> outputs);

struct ResultAttrs {
  DType dtype;
  static constexpr auto fields() { return field_list(field::output_dtype<&ResultAttrs::dtype>("dtype")); }
};
void infer_result(const OpCall& call, OutputMetas& out);
void build_result(RecipeBuilder& b);
void reference_result(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::attention

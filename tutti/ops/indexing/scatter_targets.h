// The common parts of scatter and scatter_add: attributes, checks and sharding.
#pragma once

#include <string>

#include "tutti/ops/engine/dim_attrs.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::facets {

using ScatterAttrs = DimAttrs;
inline size_t scatter_dim(const Attrs& attrs) { return static_cast<size_t>(attrs.as<ScatterAttrs>().dim); }

// Inputs are x, index, source.
void infer_scatter(const OpCall& call, OutputMetas& out);
void check_scatter_indices(const OpCall& call);
// `classes`: the partial rows.
std::string scatter_sharding(const OpCall& call, const char* classes);

}  // namespace tutti::facets

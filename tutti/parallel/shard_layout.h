// How fully_shard() places a parameter: what each rank stores of it, and what forward reads.
#pragma once

#include "tutti/parallel/group_parameters.h"

namespace tutti::parallel {

// How a parameter will be stored: cut on `dim` over the last dim of the mesh as torch.chunk does, and each part of it
// over the first, if `divides_over_replicas`. UsageError, naming it, for a parameter that is distributed in a way that
// cannot be divided further.
StoredParameter stored_as(const nn::NamedParameter& p, const dist::Mesh& mesh, int dim, bool divides_over_replicas);

}  // namespace tutti::parallel

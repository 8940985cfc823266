#include "tutti/parallel/shard_layout.h"

#include <algorithm>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"

namespace tutti::parallel {
namespace {

// A parameter that ranks divide already (tensor_parallel.h): each of them divides its part over its data ranks, so the
// dims of the data mesh come first and cut last. The sum rules of the parts hold for the data ranks, too, as storage
// may be cut anywhere.
void divide_further(StoredParameter& stored, const Tensor& master, const dist::Mesh& mesh) {
  const nn::NamedParameter& p = stored.named;
  const dist::Part& placed = dist::part_of(master, "fully_shard");
  TUTTI_CHECK(placed.mesh->ndim() == 1 && !placed.spec->has_partial() && placed.spec->placements()[0].pieces() == 1,
              "fully_shard: parameter '{}' is {} already; expected a plain tensor, or a part on one dim as "
              "parallelize_module() makes it",
              p.name, describe(master));
  for (const std::string& name : mesh->names()) {
    TUTTI_CHECK(std::ranges::count(placed.mesh->names(), name) == 0,
                "fully_shard: parameter '{}' is divided over {} already; give another dim of the same mesh, such as "
                "mesh->slice({{\"dp_shard\"}})",
                p.name, placed.mesh->to_string());
  }
  stored.mesh = dist::concatenate({mesh, placed.mesh});
  const int tensor_dim = mesh->ndim();
  dist::SpecFields fields = placed.spec->fields();
  fields.sizes = placed.local.extents();
  fields.mesh_id = mesh->id(), fields.mesh_shape = mesh->shape();
  fields.placements = stored.spec->placements();
  fields.order.clear();
  stored.spec = &dist::DTensorSpec::of(fields, "fully_shard");
  fields.placements = stored.storage->placements();
  fields.order = stored.storage->order();
  stored.storage = &dist::DTensorSpec::of(fields, "fully_shard");
  const std::vector<int> data_order = stored.storage->order();
  fields.sizes = p.parameter.sizes();
  fields.mesh_id = stored.mesh->id(), fields.mesh_shape = stored.mesh->shape();
  fields.placements.push_back(placed.spec->placements()[0]);
  fields.order = {tensor_dim};
  for (int m = 0; m < tensor_dim; ++m)
    fields.order.push_back(data_order.empty() ? m : data_order[static_cast<size_t>(m)]);
  stored.master = &dist::DTensorSpec::of(std::move(fields), "fully_shard");
  fields = placed.spec->fields();
  fields.dtype = p.parameter.use_dtype();
  stored.read = &dist::DTensorSpec::of(std::move(fields), "fully_shard");
  stored.readers = placed.mesh;
}

}  // namespace

StoredParameter stored_as(const nn::NamedParameter& p, const dist::Mesh& mesh, int dim, bool divides_over_replicas) {
  dist::Placements placements(static_cast<size_t>(mesh->ndim()), dist::replicate());
  placements.back() = dist::shard(dim);
  dist::SpecFields fields{.mesh_id = mesh->id(),
                          .mesh_shape = mesh->shape(),
                          .placements = std::move(placements),
                          .sizes = p.parameter.sizes(),
                          .dtype = p.parameter.dtype(),
                          .cut = dist::Cut::chunk};
  const auto& spec = dist::DTensorSpec::of(fields, "fully_shard");
  if (divides_over_replicas) {
    fields.placements.front() = fields.placements.back();
    fields.order = {1, 0};
  }
  const auto& storage = dist::DTensorSpec::of(std::move(fields), "fully_shard");
  StoredParameter stored{.named = p, .spec = &spec, .storage = &storage, .master = &storage, .mesh = mesh};
  if (p.parameter.is_materialized() && dist::is_dtensor(p.parameter.master()))
    divide_further(stored, p.parameter.master(), mesh);
  return stored;
}

}  // namespace tutti::parallel

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"

namespace tutti::dist {
namespace {

// The layout of a new tensor, and the sizes of this rank's part; no sizes on ranks outside.
const DTensorSpec& spec_for(const Shape& sizes, const Mesh& mesh, Placements placements, DType dtype,
                            const char* where) {
  TUTTI_CHECK(mesh != nullptr, "{}: the mesh is null", where);
  const Extents extents = concrete(sizes);
  for (const int64_t n : extents) TUTTI_CHECK(n >= 0, "{}: sizes {} hold a negative size", where, extents);
  if (placements.empty()) placements.resize(static_cast<size_t>(mesh->ndim()));
  const DTensorSpec& spec = DTensorSpec::of({.mesh_id = mesh->id(),
                                             .mesh_shape = mesh->shape(),
                                             .placements = std::move(placements),
                                             .sizes = extents,
                                             .dtype = dtype},
                                            where);
  TUTTI_CHECK(!spec.has_partial(), "{}: {} holds Partial placements; make the tensor replicated, then redistribute()",
              where, to_string(spec.placements()));
  return spec;
}
Extents part_sizes(const DTensorSpec& spec, const DeviceMesh& mesh) {
  return mesh.has_coordinate() ? spec.local_sizes(mesh.coordinate()) : Extents{0};
}

// This rank's part of a draw, one outer index after another where more than the outermost dims are cut.
Tensor draw_part(const DTensorSpec& spec, const DeviceMesh& mesh,
                 const std::function<Tensor(const Shape&, const RandomKey&)>& draw, const RandomKey& key) {
  if (!mesh.has_coordinate()) return tutti::zeros({0}, spec.dtype());
  const Extents& sizes = spec.sizes();
  Extents part = spec.local_sizes(mesh.coordinate()), offsets(sizes.size(), 0);
  for (int d = 0; d < sizes.ndim(); ++d) {
    const IndexSet held = spec.indices(d, mesh.coordinate());
    offsets[static_cast<size_t>(d)] = held.ranges().empty() ? 0 : held.ranges()[0].begin;
  }
  for (const Placement& p : spec.placements()) {
    TUTTI_CHECK(!p.is_shard() || p.pieces() == 1,
                "rand: {} gives a rank several ranges of a dim; draw with S({}), then redistribute()",
                to_string(spec.placements()), p.dim());
  }
  if (numel_of(part) == 0) return tutti::zeros(to_shape(part), spec.dtype());
  const std::function<Tensor(int, Extents, Extents)> box = [&](int dim, Extents box_sizes,
                                                               Extents box_offsets) -> Tensor {
    // One dim besides the outermost may be cut in one draw.
    int cut = 0;
    for (int d = 1; d < sizes.ndim(); ++d) cut += box_sizes[static_cast<size_t>(d)] != sizes[static_cast<size_t>(d)];
    if (cut <= 1 || dim >= sizes.ndim())
      return draw(to_shape(box_sizes), tutti::part_of(key, sizes, box_sizes, box_offsets));
    std::vector<Tensor> slices;
    for (int64_t i = 0; i < box_sizes[static_cast<size_t>(dim)]; ++i) {
      Extents one = box_sizes, at = box_offsets;
      one[static_cast<size_t>(dim)] = 1;
      at[static_cast<size_t>(dim)] += i;
      slices.push_back(box(dim + 1, one, at));
    }
    return cat(slices, dim);
  };
  return box(0, part, offsets);
}

}  // namespace

Tensor full(const Shape& sizes, double value, const Mesh& mesh, Placements placements, DType dtype) {
  const DTensorSpec& spec = spec_for(sizes, mesh, std::move(placements), dtype, "full");
  return wrap(tutti::full(to_shape(part_sizes(spec, *mesh)), value, dtype), spec, mesh);
}
Tensor zeros(const Shape& sizes, const Mesh& mesh, Placements placements, DType dtype) {
  return full(sizes, 0.0, mesh, std::move(placements), dtype);
}
Tensor ones(const Shape& sizes, const Mesh& mesh, Placements placements, DType dtype) {
  return full(sizes, 1.0, mesh, std::move(placements), dtype);
}
Tensor empty(const Shape& sizes, const Mesh& mesh, Placements placements, DType dtype) {
  const DTensorSpec& spec = spec_for(sizes, mesh, std::move(placements), dtype, "empty");
  return wrap(Tensor::empty(part_sizes(spec, *mesh), dtype), spec, mesh);
}
Tensor rand(const Shape& sizes, const RandomKey& key, const Mesh& mesh, Placements placements, DType dtype) {
  const DTensorSpec& spec = spec_for(sizes, mesh, std::move(placements), dtype, "rand");
  return wrap(
      draw_part(
          spec, *mesh, [&](const Shape& part, const RandomKey& k) { return uniform(part, k, 0.0, 1.0, dtype); }, key),
      spec, mesh);
}
Tensor randn(const Shape& sizes, const RandomKey& key, const Mesh& mesh, Placements placements, DType dtype) {
  const DTensorSpec& spec = spec_for(sizes, mesh, std::move(placements), dtype, "randn");
  return wrap(
      draw_part(
          spec, *mesh, [&](const Shape& part, const RandomKey& k) { return normal(part, k, 0.0, 1.0, dtype); }, key),
      spec, mesh);
}

Tensor drawn_part(const Tensor& like, const RandomKey& key,
                  const std::function<Tensor(const Shape&, const RandomKey&)>& draw) {
  static_cast<void>(like.extents());  // keys depend on them
  const Part& part = part_of(like, "drawn_part");
  return draw_part(*part.spec, *part.mesh, draw, key);
}

}  // namespace tutti::dist

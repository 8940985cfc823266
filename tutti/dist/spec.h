// DTensorSpec: everything about a distributed tensor but its elements. Equal specs are one object, which lives as long
// as the process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/core/dtype.h"
#include "tutti/core/placement.h"
#include "tutti/core/shape.h"
#include "tutti/dist/device_mesh.h"
#include "tutti/dist/index_set.h"

namespace tutti::dist {

using Placements = std::vector<Placement>;  // one per dim of the mesh

// The fields of a spec.
struct SpecFields {
  uint32_t mesh_id = 0;
  std::vector<int64_t> mesh_shape = {};
  Placements placements = {};
  // The dims of the mesh in the order in which they cut, the outermost first; empty: ascending. Only the order of those
  // that shard one dim of the tensor matters.
  std::vector<int> order = {};
  Extents sizes = {};        // of the whole tensor
  DType dtype = DType::f32;  // of the whole tensor
  Cut cut = Cut::halving;
  friend bool operator==(const SpecFields&, const SpecFields&) = default;
};

class DTensorSpec {
 public:
  // The spec of these fields. Dims may be negative. UsageError for a dim that the tensor does not have, a mesh dim
  // without placement, Partial placements that cannot be combined (sum and avg can) or that the dtype does not have,
  // pieces that do not divide what a rank holds, and an order that is no permutation.
  static const DTensorSpec& of(SpecFields fields, std::string_view where = "DTensor");
  static const DTensorSpec& of_id(uint32_t id);

  uint32_t id() const { return id_; }
  uint32_t mesh_id() const { return fields_.mesh_id; }
  const std::vector<int64_t>& mesh_shape() const { return fields_.mesh_shape; }
  int mesh_ndim() const { return static_cast<int>(fields_.mesh_shape.size()); }
  const Placements& placements() const { return fields_.placements; }
  const std::vector<int>& order() const { return fields_.order; }
  const Extents& sizes() const { return fields_.sizes; }
  DType dtype() const { return fields_.dtype; }
  // The parts are f32 while terms of a narrow float are still to be added (numerics contract, N4), else they have the
  // dtype of the whole.
  DType local_dtype() const { return local_dtype_; }
  Cut cut() const { return fields_.cut; }
  const SpecFields& fields() const { return fields_; }

  bool is_replicated() const;
  bool has_partial() const;
  bool has_shard() const;
  // The mesh dims that shard `dim`, outermost first.
  std::vector<int> axes_of(int dim) const;
  // The indices of dim `dim` that the rank at `coordinate` holds.
  IndexSet indices(int dim, std::span<const int64_t> coordinate) const;
  Extents local_sizes(std::span<const int64_t> coordinate) const;
  bool has_parts_of(const DTensorSpec& other) const;  // every rank's part is the same in both: an axis of one rank may
                                                      // say anything, and orders and cuts may make no difference
  // The same spec with other placements; an order is kept.
  const DTensorSpec& with(Placements placements) const;

  // "f32[4096, 1024]@[S(0), R]".
  std::string to_string() const;

 private:
  friend struct SpecTable;
  SpecFields fields_;
  DType local_dtype_ = DType::f32;
  uint32_t id_ = 0;
};

// "[S(0), R]"; with the order where it is not ascending: "[S(0), S(0) order 1 0]".
std::string to_string(const Placements& placements);
// "S(0)", "R", "P(sum)", also "P": one placement. UsageError naming what is wrong.
Placement placement_from_text(std::string_view text);

}  // namespace tutti::dist

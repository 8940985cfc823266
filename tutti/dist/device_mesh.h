// DeviceMesh: ranks as a grid, each of whose dims has a process group per line of ranks.
//
//   const Mesh mesh = init_device_mesh("cpu", {2, 4}, {.names = {"dp", "tp"}});
//   mesh->slice({"tp"})->group()        // the 4 ranks of this rank's row
//   mesh->slice({"dp", "tp"})->flatten("all")
//
// A mesh is immutable. All its ranks make it, and its slices, flattened and other derived meshes, in the same order;
// ranks outside of a mesh may hold it too, have no coordinate and no groups in it. Any thread of the rank may ask; the
// functions that make meshes are collective and belong to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/dist/mesh_layout.h"

namespace tutti::dist {

class DeviceMesh;
class MeasuredCosts;  // measured_costs.h
using Mesh = std::shared_ptr<const DeviceMesh>;

struct MeshOptions {
  std::vector<std::string> names = {};  // one per dim, distinct; empty: dims have no names
  // The transport of the groups of single dims, by name or by number as text ("0"); the others have the job's default.
  std::map<std::string, std::string> transports = {};
  // Ends calls of the groups, which are then made for the mesh. Without one, groups have the timeout of the world, and
  // a dim over all its ranks uses its group.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

// The first ranks of the world, row by row. Starts the world where there is none. UsageError for a product of sizes
// that is larger than the world, for names that repeat or are not one per dim, and for a device type with an index
// ("cuda:0").
Mesh init_device_mesh(std::string_view device_type, const std::vector<int64_t>& shape, const MeshOptions& options = {});
// Any distinct world ranks, row by row.
Mesh make_device_mesh(std::string_view device_type, const std::vector<int>& ranks, const std::vector<int64_t>& shape,
                      const MeshOptions& options = {});
// A mesh over groups that exist: one group gives a mesh of one dim; several, one per dim, need the ranks of the whole
// grid.
Mesh mesh_from_group(const std::shared_ptr<comm::ProcessGroup>& group, std::string_view device_type,
                     const MeshOptions& options = {});
Mesh mesh_from_groups(const std::vector<std::shared_ptr<comm::ProcessGroup>>& groups, std::string_view device_type,
                      const std::vector<int>& ranks, const std::vector<int64_t>& shape,
                      const MeshOptions& options = {});
// The dims of several slices of one mesh, one after another. UsageError where they come from different meshes or share
// ranks.
Mesh concatenate(const std::vector<Mesh>& meshes);

class DeviceMesh : public std::enable_shared_from_this<DeviceMesh> {
 public:
  const std::string& device_type() const;
  int ndim() const { return static_cast<int>(layout_.dims.size()); }
  std::vector<int64_t> shape() const { return layout_.sizes(); }
  int64_t size() const { return layout_.size(); }
  int64_t size(int64_t dim) const;
  const std::vector<std::string>& names() const { return names_; }
  // The number of the dim of that name. UsageError naming the nearest one.
  int dim_of(std::string_view name) const;
  const MeshLayout& layout() const { return layout_; }

  // Equal on all ranks, and for meshes of equal ranks, shape, names and device type.
  uint32_t id() const { return id_; }
  // World ranks, the last dim fastest.
  const std::vector<int>& ranks() const { return ranks_; }
  int rank() const;  // this rank's world rank
  bool has_coordinate() const { return coordinate_.has_value(); }
  // This rank's place. UsageError on a rank outside of the mesh.
  const std::vector<int64_t>& coordinate() const;
  int64_t local_rank(int64_t dim) const;
  int64_t local_rank() const;  // of a mesh of one dim

  // The group of this rank's line along a dim. UsageError on a rank outside of the mesh, and without a dim for a mesh
  // of several.
  const std::shared_ptr<comm::ProcessGroup>& group(int64_t dim) const;
  const std::shared_ptr<comm::ProcessGroup>& group(std::string_view name) const { return group(dim_of(name)); }
  const std::shared_ptr<comm::ProcessGroup>& group() const;
  std::vector<std::shared_ptr<comm::ProcessGroup>> groups() const;
  // The transports that may lie under the groups, the same on all ranks: that of the world, and those that MeshOptions
  // name.
  std::vector<std::string> transports() const;
  // The measured costs of redistributions that TUTTI_DTENSOR_COSTS names: those of the first rank, on all ranks. Null:
  // there are none.
  const std::shared_ptr<const MeasuredCosts>& costs() const;

  // The dims of those names, in that order, at this rank's place in the other dims. Names may be those of flattened
  // meshes. All names in their order give this mesh.
  Mesh slice(const std::vector<std::string>& names) const;
  // All dims as one, named `name` ("dp_cp" for dims dp and cp when empty). The same mesh for the same name.
  Mesh flatten(std::string_view name = {}) const;
  // Dim `dim` divided into dims of these sizes and names.
  Mesh unflatten(int64_t dim, const std::vector<int64_t>& sizes, const std::vector<std::string>& names,
                 const std::map<std::string, std::string>& transports = {}) const;
  Mesh unflatten(std::string_view dim, const std::vector<int64_t>& sizes, const std::vector<std::string>& names) const {
    return unflatten(dim_of(dim), sizes, names);
  }
  // The group of the ranks that differ from this one in the given dims only. Collective on its first use.
  std::shared_ptr<comm::ProcessGroup> group_over(const std::vector<int>& dims) const;

  // Whether the calls of both go over the same groups: one was derived from the other, or both from a third.
  bool has_groups_of(const DeviceMesh& other) const { return root_ == other.root_; }

  // The group of the ranks of this mesh and of `other`, in ascending order; null on other ranks. Collective on its
  // first use.
  std::shared_ptr<comm::ProcessGroup> group_with(const DeviceMesh& other) const;

  // "mesh(dp=2, tp=4)", for messages.
  std::string to_string() const;
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b) { return a.id_ == b.id_; }

  // For functions of this file.
  struct Root;
  DeviceMesh(std::shared_ptr<Root> root, MeshLayout layout, std::vector<std::string> names, int64_t base);

 private:
  friend Mesh concatenate(const std::vector<Mesh>& meshes);
  Mesh derived(MeshLayout layout, std::vector<std::string> names) const;
  int checked_dim(int64_t dim, const char* where) const;

  const std::shared_ptr<Root> root_;
  const MeshLayout layout_;
  const std::vector<std::string> names_;
  const int64_t base_;  // the position of the first rank in the root's list
  std::vector<int> ranks_;
  std::optional<std::vector<int64_t>> coordinate_;
  uint32_t id_ = 0;
};

// This rank's mesh of that id. UsageError when none lives.
Mesh mesh_of_id(uint32_t id);

}  // namespace tutti::dist

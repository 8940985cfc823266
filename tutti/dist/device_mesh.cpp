#include "tutti/dist/device_mesh.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tutti/comm/groups.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/dist/measured_costs.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::dist {

using comm::ProcessGroup;

// What all meshes that are derived from one share.
struct DeviceMesh::Root {
  std::string device_type;
  std::vector<int> ranks;  // world ranks, by position
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  int64_t position = -1;  // this rank's; -1: it is outside
  MeshLayout layout;      // of the first mesh
  std::vector<std::string> names;
  std::set<std::string> transports = {};                                  // that were named for some dim
  std::map<std::string, MeshDim> flattened = {};                          // by name
  std::map<std::vector<int>, std::shared_ptr<ProcessGroup>> groups = {};  // of this rank, by world ranks
  std::shared_ptr<const MeasuredCosts> costs = nullptr;
};

namespace {

// This rank's meshes, oldest first; several may have one id.
struct Meshes {
  std::mutex mutex;
  std::multimap<uint32_t, std::weak_ptr<const DeviceMesh>> by_id;
};

// Ids are hashes of what a mesh is, so that ranks need not agree on them; the table resolves the hashes that meet.
uint32_t id_of(const std::string& content) {
  static std::mutex mutex;
  static std::map<uint32_t, std::string> known;
  const std::lock_guard lock(mutex);
  for (uint64_t salt = 0;; ++salt) {
    const auto id = static_cast<uint32_t>(hash64(salt == 0 ? content : fmt::format("{} {}", content, salt)));
    const auto [it, is_new] = known.try_emplace(id, content);
    if (is_new || it->second == content) return id;
  }
}

void check_device_type(std::string_view device_type) {
  TUTTI_CHECK(device_type.find(':') == std::string_view::npos,
              "DeviceMesh: device type '{}' names one device; give the type alone ('{}'): each rank has its own device",
              device_type, device_type.substr(0, device_type.find(':')));
  TUTTI_CHECK(device_type == "cpu" || device_type == "cuda", "DeviceMesh: {}",
              unknown_name_message("device type", device_type, std::vector<std::string>{"cpu", "cuda"}));
}

void check_names(const std::vector<std::string>& names, size_t dims, const char* where) {
  TUTTI_CHECK(names.empty() || names.size() == dims, "{}: {} names for {} dims ([{}]); give each dim one name", where,
              names.size(), dims, fmt::join(names, ", "));
  std::set<std::string> seen;
  for (const std::string& name : names) {
    TUTTI_CHECK(!name.empty(), "{}: an empty name in [{}]; give each dim a name, or none any", where,
                fmt::join(names, ", "));
    TUTTI_CHECK(seen.insert(name).second, "{}: name '{}' stands twice in [{}]; names are distinct", where, name,
                fmt::join(names, ", "));
  }
}

int64_t product_of(const std::vector<int64_t>& sizes, const char* where) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    TUTTI_CHECK(size >= 1, "{}: size {} in shape [{}]; dims of a mesh have at least one rank", where, size,
                fmt::join(sizes, ", "));
    TUTTI_CHECK(!__builtin_mul_overflow(product, size, &product), "{}: shape [{}] has more ranks than a 64-bit number",
                where, fmt::join(sizes, ", "));
  }
  return product;
}

// The transport of each dim: "" where none is named.
std::vector<std::string> transports_of(const std::map<std::string, std::string>& named,
                                       const std::vector<std::string>& names, size_t dims, const char* where) {
  std::vector<std::string> result(dims);
  for (const auto& [key, transport] : named) {
    size_t dim = dims;
    for (size_t d = 0; d < dims; ++d) {
      if (key == std::to_string(d) || (d < names.size() && key == names[d])) dim = d;
    }
    TUTTI_CHECK(dim < dims, "{}: a transport is given for dim '{}', which the mesh does not have: names [{}], {} dims",
                where, key, fmt::join(names, ", "), dims);
    TUTTI_CHECK(result[dim].empty(), "{}: two transports are given for dim {}, by its name and by its number", where,
                dim);
    result[dim] = transport;
  }
  return result;
}

// The world ranks of this rank's line along `dim`.
std::vector<int> line_of(const DeviceMesh::Root& root, const MeshDim& dim, int64_t coordinate) {
  std::vector<int> line;
  const int64_t first = root.position - dim.offset(coordinate);
  for (int64_t c = 0; c < dim.size(); ++c) line.push_back(root.ranks[static_cast<size_t>(first + dim.offset(c))]);
  return line;
}

std::shared_ptr<ProcessGroup> group_of(DeviceMesh::Root& root, const std::vector<int>& line, const std::string& name,
                                       const std::string& transport) {
  if (const auto it = root.groups.find(line); it != root.groups.end() && transport.empty()) return it->second;
  std::shared_ptr<ProcessGroup> group = comm::world();
  if (line != group->world_ranks() || !transport.empty() || root.timeout) {
    group = comm::new_group(
        line,
        {.description = "mesh_" + name, .transport = transport, .timeout = root.timeout.value_or(group->timeout())});
  }
  root.groups[line] = group;
  return group;
}

// Registers a mesh whose groups exist.
Mesh registered(std::shared_ptr<DeviceMesh> mesh) {
  Meshes& meshes = RankContext::current().slot<Meshes>();
  const std::lock_guard lock(meshes.mutex);
  std::erase_if(meshes.by_id, [](const auto& entry) { return entry.second.expired(); });
  meshes.by_id.emplace(mesh->id(), mesh);
  return mesh;
}

// Makes the groups of the dims, in order. Ranks outside take no part.
Mesh with_groups(std::shared_ptr<DeviceMesh::Root> root, std::shared_ptr<DeviceMesh> mesh,
                 const std::vector<std::string>& transports) {
  for (const std::string& transport : transports) {
    if (!transport.empty()) root->transports.insert(transport);
  }
  if (mesh->has_coordinate()) {
    for (int d = 0; d < mesh->ndim(); ++d) {
      const auto at = static_cast<size_t>(d);
      group_of(*root, line_of(*root, mesh->layout().dims[at], mesh->coordinate()[at]),
               mesh->names().empty() ? std::to_string(d) : mesh->names()[at], transports[at]);
    }
  }
  return registered(std::move(mesh));
}

// All ranks must choose the same plans, so those of a mesh take what the first one has read: along the first dim, then
// along the next.
std::shared_ptr<const MeasuredCosts> agreed_costs(const DeviceMesh& mesh) {
  std::string costs = costs_of_environment();
  if (!mesh.has_coordinate()) return nullptr;
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (mesh.group(d)->size() > 1) costs = mesh.group(d)->broadcast_bytes(costs, 0);
  }
  return costs.empty() ? nullptr : costs_from(costs);
}

std::shared_ptr<DeviceMesh::Root> make_root(std::string_view device_type, const std::vector<int>& ranks,
                                            const std::vector<int64_t>& shape, const MeshOptions& options,
                                            const char* where) {
  check_device_type(device_type);
  check_names(options.names, shape.size(), where);
  TUTTI_CHECK(!shape.empty(), "{}: the shape is empty; a mesh has at least one dim", where);
  const int64_t size = product_of(shape, where);
  TUTTI_CHECK(size == static_cast<int64_t>(ranks.size()),
              "{}: shape [{}] has {} places for {} ranks; their numbers must agree", where, fmt::join(shape, ", "),
              size, ranks.size());
  const int world = comm::world()->size(), rank = comm::world()->rank();
  std::set<int> seen;
  for (const int r : ranks) {
    TUTTI_CHECK(r >= 0 && r < world, "{}: rank {} is not one of the {} ranks of the world", where, r, world);
    TUTTI_CHECK(seen.insert(r).second, "{}: rank {} stands twice; a rank has one place in a mesh", where, r);
  }
  auto root = std::make_shared<DeviceMesh::Root>();
  root->device_type = device_type;
  root->ranks = ranks;
  root->timeout = options.timeout;
  root->layout = MeshLayout::dense(shape);
  root->names = options.names;
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  if (at != ranks.end()) root->position = at - ranks.begin();
  return root;
}

}  // namespace

Mesh init_device_mesh(std::string_view device_type, const std::vector<int64_t>& shape, const MeshOptions& options) {
  constexpr const char* kWhere = "init_device_mesh";
  check_device_type(device_type);
  if (!comm::has_world()) comm::init_process_group();
  const int64_t size = product_of(shape, kWhere), world = comm::world()->size();
  TUTTI_CHECK(size <= world, "{}: shape [{}] needs {} ranks, the world has {}; start more, or make the mesh smaller",
              kWhere, fmt::join(shape, ", "), size, world);
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return make_device_mesh(device_type, ranks, shape, options);
}

Mesh make_device_mesh(std::string_view device_type, const std::vector<int>& ranks, const std::vector<int64_t>& shape,
                      const MeshOptions& options) {
  constexpr const char* kWhere = "DeviceMesh";
  const std::shared_ptr<DeviceMesh::Root> root = make_root(device_type, ranks, shape, options, kWhere);
  const std::vector<std::string> transports = transports_of(options.transports, options.names, shape.size(), kWhere);
  const Mesh mesh = with_groups(root, std::make_shared<DeviceMesh>(root, root->layout, options.names, 0), transports);
  root->costs = agreed_costs(*mesh);
  return mesh;
}

Mesh mesh_from_group(const std::shared_ptr<ProcessGroup>& group, std::string_view device_type,
                     const MeshOptions& options) {
  TUTTI_CHECK(group != nullptr, "mesh_from_group: the group is null: this rank is in none of those that were made");
  return mesh_from_groups({group}, device_type, group->world_ranks(), {group->size()}, options);
}

Mesh mesh_from_groups(const std::vector<std::shared_ptr<ProcessGroup>>& groups, std::string_view device_type,
                      const std::vector<int>& ranks, const std::vector<int64_t>& shape, const MeshOptions& options) {
  constexpr const char* kWhere = "mesh_from_groups";
  TUTTI_CHECK(groups.size() == shape.size(), "{}: {} groups for the {} dims of shape [{}]; give one per dim", kWhere,
              groups.size(), shape.size(), fmt::join(shape, ", "));
  TUTTI_CHECK(options.transports.empty(),
              "{}: groups have their transports already; leave MeshOptions::transports empty", kWhere);
  const std::shared_ptr<DeviceMesh::Root> root = make_root(device_type, ranks, shape, options, kWhere);
  const auto mesh = std::make_shared<DeviceMesh>(root, root->layout, options.names, 0);
  for (size_t d = 0; mesh->has_coordinate() && d < groups.size(); ++d) {
    const std::vector<int> line = line_of(*root, root->layout.dims[d], mesh->coordinate()[d]);
    TUTTI_CHECK(groups[d] != nullptr && groups[d]->world_ranks() == line,
                "{}: dim {} has ranks [{}] at this rank's place, and its group has [{}]; the group of a dim has the "
                "ranks of its line, in order",
                kWhere, d, fmt::join(line, ", "),
                fmt::join(groups[d] == nullptr ? std::vector<int>{} : groups[d]->world_ranks(), ", "));
    root->groups[line] = groups[d];
  }
  root->costs = agreed_costs(*mesh);
  return registered(mesh);
}

Mesh concatenate(const std::vector<Mesh>& meshes) {
  TUTTI_CHECK(!meshes.empty(), "concatenate: no meshes are given");
  MeshLayout layout;
  std::vector<std::string> names;
  for (const Mesh& mesh : meshes) {
    TUTTI_CHECK(mesh->root_ == meshes[0]->root_,
                "concatenate: {} and {} come from different meshes; slice both from one", meshes[0]->to_string(),
                mesh->to_string());
    layout.dims.insert(layout.dims.end(), mesh->layout_.dims.begin(), mesh->layout_.dims.end());
    names.insert(names.end(), mesh->names_.begin(), mesh->names_.end());
  }
  TUTTI_CHECK(names.size() == layout.dims.size(),
              "concatenate: meshes without names cannot be told apart; name their dims");
  check_names(names, layout.dims.size(), "concatenate");
  TUTTI_CHECK(!layout.overlaps(),
              "concatenate: the meshes share ranks besides this one ({}); their dims must be different ones",
              layout.to_string());
  return meshes[0]->derived(std::move(layout), std::move(names));
}

DeviceMesh::DeviceMesh(std::shared_ptr<Root> root, MeshLayout layout, std::vector<std::string> names, int64_t base)
    : root_(std::move(root)), layout_(std::move(layout)), names_(std::move(names)), base_(base) {
  const std::vector<int64_t> offsets = layout_.offsets();
  for (size_t k = 0; k < offsets.size(); ++k) {
    const int64_t position = base_ + offsets[k];
    ranks_.push_back(root_->ranks[static_cast<size_t>(position)]);
    if (position != root_->position) continue;
    coordinate_.emplace(layout_.dims.size());
    int64_t rest = static_cast<int64_t>(k);
    for (size_t d = layout_.dims.size(); d-- > 0;) {
      (*coordinate_)[d] = rest % layout_.dims[d].size();
      rest /= layout_.dims[d].size();
    }
  }
  id_ = id_of(fmt::format("{} [{}] [{}] [{}]", root_->device_type, fmt::join(ranks_, ","),
                          fmt::join(layout_.sizes(), ","), fmt::join(names_, ",")));
}

const std::string& DeviceMesh::device_type() const { return root_->device_type; }
const std::shared_ptr<const MeasuredCosts>& DeviceMesh::costs() const { return root_->costs; }
int DeviceMesh::rank() const { return comm::world()->rank(); }

int DeviceMesh::checked_dim(int64_t dim, const char* where) const {
  TUTTI_CHECK(dim >= -ndim() && dim < ndim(), "{}: dim {} of {}, which has {} dims", where, dim, to_string(), ndim());
  return static_cast<int>(dim < 0 ? dim + ndim() : dim);
}

int64_t DeviceMesh::size(int64_t dim) const {
  return layout_.dims[static_cast<size_t>(checked_dim(dim, "size"))].size();
}

int DeviceMesh::dim_of(std::string_view name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  TUTTI_CHECK(!names_.empty(), "{} has no names, so none of its dims is '{}'; give MeshOptions::names", to_string(),
              name);
  TUTTI_CHECK(at != names_.end(), "{}: {}", to_string(), unknown_name_message("dim", name, names_));
  return static_cast<int>(at - names_.begin());
}

const std::vector<int64_t>& DeviceMesh::coordinate() const {
  TUTTI_CHECK(coordinate_.has_value(), "rank {} has no place in {}, whose ranks are [{}]; ask has_coordinate() first",
              rank(), to_string(), fmt::join(ranks_, ", "));
  return *coordinate_;
}

int64_t DeviceMesh::local_rank(int64_t dim) const {
  return coordinate()[static_cast<size_t>(checked_dim(dim, "local_rank"))];
}

int64_t DeviceMesh::local_rank() const {
  TUTTI_CHECK(ndim() == 1, "local_rank: {} has {} dims; say which, or slice it", to_string(), ndim());
  return coordinate()[0];
}

const std::shared_ptr<ProcessGroup>& DeviceMesh::group(int64_t dim) const {
  const auto at = static_cast<size_t>(checked_dim(dim, "group"));
  const std::vector<int> line = line_of(*root_, layout_.dims[at], coordinate()[at]);
  const auto it = root_->groups.find(line);
  TUTTI_ASSERT(it != root_->groups.end(), "dim {} of {} has no group", dim, to_string());
  return it->second;
}

const std::shared_ptr<ProcessGroup>& DeviceMesh::group() const {
  TUTTI_CHECK(ndim() == 1, "group: {} has {} dims, each with a group of its own; say which, or flatten it", to_string(),
              ndim());
  return group(0);
}

std::vector<std::shared_ptr<ProcessGroup>> DeviceMesh::groups() const {
  std::vector<std::shared_ptr<ProcessGroup>> result;
  for (int d = 0; d < ndim(); ++d) result.push_back(group(d));
  return result;
}

std::vector<std::string> DeviceMesh::transports() const {
  std::vector<std::string> names(root_->transports.begin(), root_->transports.end());
  names.emplace_back(comm::world()->backend(DeviceKind::cpu).name());
  return names;
}

// The mesh of other dims of the root that goes through this rank; for a rank outside, through the first.
Mesh DeviceMesh::derived(MeshLayout layout, std::vector<std::string> names) const {
  int64_t base = base_;
  if (root_->position >= 0) {
    base = root_->position;
    for (const MeshDim& dim : layout.dims) {
      for (const StridedPart& part : dim.parts) base -= root_->position / part.stride % part.size * part.stride;
    }
  }
  auto mesh = std::make_shared<DeviceMesh>(root_, std::move(layout), std::move(names), base);
  return with_groups(root_, mesh, std::vector<std::string>(static_cast<size_t>(mesh->ndim())));
}

Mesh DeviceMesh::slice(const std::vector<std::string>& names) const {
  TUTTI_CHECK(!names_.empty(), "slice: {} has no names; give MeshOptions::names", to_string());
  TUTTI_CHECK(!names.empty(), "slice: no names of {} are given", to_string());
  if (names == names_) return shared_from_this();
  check_names(names, names.size(), "slice");
  MeshLayout layout;
  std::vector<std::string> known = names_;
  for (const auto& [name, dim] : root_->flattened) known.push_back(name);
  for (const std::string& name : names) {
    const auto own = std::find(names_.begin(), names_.end(), name);
    const auto flattened = root_->flattened.find(name);
    if (own != names_.end()) layout.dims.push_back(layout_.dims[static_cast<size_t>(own - names_.begin())]);
    else if (flattened != root_->flattened.end()) layout.dims.push_back(flattened->second);
    else throw UsageError(fmt::format("slice of {}: {}", to_string(), unknown_name_message("dim", name, known)));
  }
  TUTTI_CHECK(!layout.overlaps(), "slice: dims [{}] of {} share ranks: one was flattened from another",
              fmt::join(names, ", "), to_string());
  return derived(std::move(layout), names);
}

Mesh DeviceMesh::flatten(std::string_view name) const {
  TUTTI_CHECK(!names_.empty() || !name.empty(), "flatten: {} has no names to join; give the flattened dim one",
              to_string());
  const std::string joined = name.empty() ? fmt::format("{}", fmt::join(names_, "_")) : std::string(name);
  if (ndim() == 1 && !names_.empty() && names_[0] == joined) return shared_from_this();
  const MeshDim dim = layout_.flattened();
  for (size_t d = 0; d < root_->names.size(); ++d) {
    TUTTI_CHECK(root_->names[d] != joined || MeshLayout{{root_->layout.dims[d]}}.flattened() == dim,
                "flatten: '{}' is the name of a dim of the mesh already; choose another", joined);
  }
  const auto [it, is_new] = root_->flattened.try_emplace(joined, dim);
  TUTTI_CHECK(is_new || it->second == dim,
              "flatten: '{}' is the name of other flattened dims of this mesh; choose another", joined);
  return derived({{dim}}, {joined});
}

Mesh DeviceMesh::unflatten(int64_t dim, const std::vector<int64_t>& sizes, const std::vector<std::string>& names,
                           const std::map<std::string, std::string>& transports) const {
  const auto at = static_cast<size_t>(checked_dim(dim, "unflatten"));
  const int64_t size = layout_.dims[at].size();
  TUTTI_CHECK(product_of(sizes, "unflatten") == size,
              "unflatten: sizes [{}] do not multiply to the {} ranks of dim {} of {}", fmt::join(sizes, ", "), size,
              dim, to_string());
  TUTTI_CHECK(names.size() == sizes.size() && !names_.empty(), "unflatten: {} names for {} sizes of {}; each needs one",
              names.size(), sizes.size(), to_string());
  MeshLayout layout;
  std::vector<std::string> all;
  for (size_t d = 0; d < layout_.dims.size(); ++d) {
    if (d != at) {
      layout.dims.push_back(layout_.dims[d]);
      all.push_back(names_[d]);
      continue;
    }
    for (MeshDim& part : unflattened(layout_.dims[d], sizes)) layout.dims.push_back(std::move(part));
    all.insert(all.end(), names.begin(), names.end());
  }
  check_names(all, layout.dims.size(), "unflatten");
  const std::vector<std::string> named = transports_of(transports, all, all.size(), "unflatten");
  return with_groups(root_, std::make_shared<DeviceMesh>(root_, std::move(layout), std::move(all), base_), named);
}

std::shared_ptr<ProcessGroup> DeviceMesh::group_over(const std::vector<int>& dims) const {
  if (dims.size() == 1) return group(dims[0]);
  MeshLayout layout = layout_.pick(dims);
  int64_t coordinate_in = 0;
  std::string name;
  for (const int d : dims) {
    coordinate_in = coordinate_in * layout_.dims[static_cast<size_t>(d)].size() + coordinate()[static_cast<size_t>(d)];
    name += fmt::format("{}{}", name.empty() ? "" : "_",
                        names_.empty() ? std::to_string(d) : names_[static_cast<size_t>(d)]);
  }
  return group_of(*root_, line_of(*root_, layout.flattened(), coordinate_in), name, "");
}

std::shared_ptr<ProcessGroup> DeviceMesh::group_with(const DeviceMesh& other) const {
  std::set<int> both(ranks_.begin(), ranks_.end());
  both.insert(other.ranks_.begin(), other.ranks_.end());
  if (both.count(rank()) == 0) return nullptr;
  return group_of(*root_, {both.begin(), both.end()}, "move", "");
}

std::string DeviceMesh::to_string() const {
  std::string dims;
  for (size_t d = 0; d < layout_.dims.size(); ++d) {
    dims +=
        fmt::format("{}{}{}", dims.empty() ? "" : ", ", names_.empty() ? "" : names_[d] + "=", layout_.dims[d].size());
  }
  return fmt::format("mesh({})", dims);
}

Mesh mesh_of_id(uint32_t id) {
  Meshes& meshes = RankContext::current().slot<Meshes>();
  const std::lock_guard lock(meshes.mutex);
  Mesh mesh;
  const auto [begin, end] = meshes.by_id.equal_range(id);
  for (auto it = begin; it != end; ++it) {
    if (Mesh alive = it->second.lock()) mesh = std::move(alive);
  }
  TUTTI_CHECK(mesh != nullptr,
              "the mesh {:08x} of a distributed tensor no longer exists on this rank; keep a handle of it as long as "
              "its tensors are used",
              id);
  return mesh;
}

}  // namespace tutti::dist

#include "tutti/parallel/fully_shard.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/module_call.h"
#include "tutti/parallel/parameter_copies.h"
#include "tutti/parallel/shard_group.h"
#include "tutti/parallel/storage_placement.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

const StoragePlacement* placement_of(const nn::Parameter& p) {
  return p.is_materialized() ? storage_placement_of(p.leaf()) : nullptr;
}

void check_mesh(const dist::DeviceMesh& mesh) {
  TUTTI_CHECK(mesh.ndim() <= 2, "fully_shard: {} has {} dims; expected one, or two of which the first holds replicas",
              mesh.to_string(), mesh.ndim());
  TUTTI_CHECK(mesh.ndim() == 1 || !mesh.names().empty(),
              "fully_shard: {} has two dims without names; name them, such as dp_replicate and dp_shard",
              mesh.to_string());
  TUTTI_CHECK(mesh.has_coordinate(), "fully_shard: rank {} is not in {}; call it on the ranks of the mesh only",
              mesh.rank(), mesh.to_string());
}

// Among how many ranks copies are kept after forward: 1, every rank keeps the whole; all, no rank keeps more than it
// stores.
int64_t checked_keepers(const ReshardAfterForward& reshard, comm::ProcessGroup& group) {
  const int64_t ranks = group.size();
  if (const bool* gives_back = std::get_if<bool>(&reshard)) return *gives_back ? ranks : 1;
  const int64_t keepers = std::get<int64_t>(reshard);
  std::string divisors;
  for (int64_t d = 1; d <= ranks; ++d) {
    if (ranks % d == 0)
      divisors += fmt::format("{}{}{}", divisors.empty() ? "" : ", ", d,
                              d == 1       ? " (false)"
                              : d == ranks ? " (true)"
                                           : "");
  }
  TUTTI_CHECK(keepers >= 1 && keepers <= ranks && ranks % keepers == 0,
              "fully_shard: reshard_after_forward = {}: groups of {} do not make up the {} ranks that divide the "
              "parameters; expected {}",
              keepers, keepers, ranks, divisors);
  TUTTI_CHECK(keepers == 1 || keepers == ranks || !shares_memory(group),
              "fully_shard: reshard_after_forward = {}: the {} ranks read one copy of the parameters in the memory of "
              "their host, gather nothing "
              "and have nothing to give back; expected true or false, which change nothing here, or ranks on a "
              "transport between hosts, such as gloo",
              keepers, ranks);
  return keepers;
}

// Whether the ranks divide masters, gradients and optimizer state further than the copies.
bool divides_over_replicas(const dist::DeviceMesh& mesh, const FullyShardOptions& options) {
  return options.outer_dp_sharding_strategy == OuterDpSharding::optim && mesh.ndim() == 2 && mesh.size(0) > 1;
}

// A parameter that ranks divide already (tensor_parallel.h): each of them divides its part over its data ranks, so the
// dims of the data mesh come first and cut last. The sum rules of the parts hold for the data ranks, too, as storage
// may be cut anywhere.
void divide_further(ShardGroup::Stored& stored, const Tensor& master, const dist::Mesh& mesh) {
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

// How a parameter will be stored: cut over the last dim of the mesh as torch.chunk does, and each part of it over the
// first, if replicas divide it further.
ShardGroup::Stored stored_as(const nn::NamedParameter& p, const dist::Mesh& mesh, const FullyShardOptions& options) {
  const int ndim = p.parameter.sizes().ndim();
  TUTTI_CHECK(ndim > 0, "fully_shard: parameter '{}' is a scalar, which cannot be divided; give it the sizes [1]",
              p.name);
  const int dim = options.shard_dim ? options.shard_dim(p) : 0;
  TUTTI_CHECK(dim >= -ndim && dim < ndim, "fully_shard: parameter '{}' is {}; it has no dim {} to cut", p.name,
              p.parameter.sizes(), dim);
  dist::Placements placements(static_cast<size_t>(mesh->ndim()), dist::replicate());
  placements.back() = dist::shard(dim < 0 ? dim + ndim : dim);
  dist::SpecFields fields{.mesh_id = mesh->id(),
                          .mesh_shape = mesh->shape(),
                          .placements = std::move(placements),
                          .sizes = p.parameter.sizes(),
                          .dtype = p.parameter.dtype(),
                          .cut = dist::Cut::chunk};
  const auto& spec = dist::DTensorSpec::of(fields, "fully_shard");
  if (divides_over_replicas(*mesh, options)) {
    fields.placements.front() = fields.placements.back();
    fields.order = {1, 0};
  }
  const auto& storage = dist::DTensorSpec::of(std::move(fields), "fully_shard");
  ShardGroup::Stored stored{.named = p, .spec = &spec, .storage = &storage, .master = &storage, .mesh = mesh};
  if (p.parameter.is_materialized() && dist::is_dtensor(p.parameter.master()))
    divide_further(stored, p.parameter.master(), mesh);
  return stored;
}

// Whether one of them has all ranks of the other.
bool are_nested(const std::vector<int>& a, const std::vector<int>& b) {
  const std::vector<int>&few = a.size() < b.size() ? a : b, &many = a.size() < b.size() ? b : a;
  return std::ranges::all_of(few, [&](int rank) { return std::ranges::count(many, rank) == 1; });
}

// The groups of modules that are to be gathered ahead.
ShardGroups::List groups_of(std::span<nn::Module* const> modules, const ShardGroups& all, const char* function) {
  ShardGroups::List list;
  const auto known = all.groups();
  for (const nn::Module* module : modules) {
    TUTTI_CHECK(module != nullptr, "{}: module {} of the list is null", function, list.size());
    const auto is_of = [&](const auto& group) { return std::ranges::count(group->modules, module) > 0; };
    const auto found = std::ranges::find_if(known, is_of);
    std::string names;
    for (const auto& group : known) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", group->name());
    TUTTI_CHECK(found != known.end(),
                "{}: module '{}' was not sharded by itself, so nothing of its own is gathered; expected modules of "
                "this model that fully_shard() was called for: {}. Set lists after "
                "the whole model was sharded",
                function, module->call_name(), names);
    list.push_back(*found);
  }
  return list;
}

}  // namespace

ShardedModule fully_shard(nn::Module& module, const FullyShardOptions& options) {
  nn::Module* const one = &module;
  return fully_shard(std::span(&one, 1), options);
}

ShardedModule fully_shard(std::span<nn::Module* const> modules, const FullyShardOptions& options) {
  TUTTI_CHECK(!modules.empty(), "fully_shard: no module is given");
  dist::Mesh mesh =
      options.mesh != nullptr ? options.mesh : dist::init_device_mesh("cpu", {RankContext::current().world_size()});
  check_mesh(*mesh);
  const std::string name = modules[0]->call_name();
  ReshardAfterForward reshard = options.reshard_after_forward.value_or(!name.empty());
  if (divides_over_replicas(*mesh, options)) {
    const dist::Mesh all = mesh->flatten("");
    if (shares_memory(*all->group())) {  // they read one copy
      reshard = checked_keepers(reshard, *mesh->group(1)) > 1;
      mesh = all;
    }
  }
  std::vector<ShardGroup::Stored> taken;
  std::vector<std::shared_ptr<ShardGroup>> inside;
  for (nn::Module* const module : modules) {
    const std::string name = module->call_name();
    for (const nn::NamedParameter& p : module->named_parameters(name.empty() ? name : name + ".")) {
      const auto is_it = [&](const nn::Parameter& q) { return q.is_same(p.parameter); };
      if (std::any_of(options.ignored_params.begin(), options.ignored_params.end(), is_it)) continue;
      if (std::any_of(taken.begin(), taken.end(),
                      [&](const ShardGroup::Stored& s) { return is_it(s.named.parameter); }))
        continue;
      if (const StoragePlacement* before = placement_of(p.parameter)) {
        const auto group = before->group.lock();
        TUTTI_CHECK(group != nullptr && std::ranges::count(group->modules, module) == 0,
                    "fully_shard: module '{}' was sharded before; call it once per module",
                    group == nullptr ? "" : group->name());
        const std::vector<int>& ranks = mesh->group(mesh->ndim() - 1)->world_ranks();
        TUTTI_CHECK(
            are_nested(group->ranks().world_ranks(), ranks),
            "fully_shard: parameter '{}' was sharded over {}, and this call is for {}; a model has one mesh, or "
            "modules inside have some of its ranks, or more",
            p.name, before->mesh->to_string(), mesh->to_string());
        inside.push_back(group);
        continue;
      }
      taken.push_back(stored_as(p, mesh, options));
      if (options.memory) {
        TUTTI_CHECK(taken.back().read == nullptr,
                    "fully_shard: the parameter '{}' is divided already; memory of one's own is for whole parameters",
                    p.name);
        taken.back().memory = options.memory(p);
      }
    }
  }
  const int64_t keepers = checked_keepers(reshard, *mesh->group(mesh->ndim() - 1));
  const auto group = ShardGroup::make(name.empty() ? "the model" : name, taken, mesh, keepers);
  group->modules.assign(modules.begin(), modules.end());
  group->all = std::make_shared<ShardGroups>();
  for (const auto& inner : inside) {
    if (inner->all == group->all) continue;
    const std::shared_ptr<ShardGroups> before = inner->all;
    for (const auto& g : before->groups()) g->all = group->all;
    group->all->take_all(*before);
  }
  group->all->add(group);
  if (group->is_shared()) return ShardedModule(group);
  modules.front()->forward_hooks().before([weak = std::weak_ptr(group)](const nn::Module&, std::vector<Tensor>&) {
    if (const auto living = weak.lock()) living->before_forward();
  });
  modules.back()->forward_hooks().after([weak = std::weak_ptr(group)](const nn::Module&, const Tensor& output) {
    if (const auto living = weak.lock()) living->after_forward(output);
    return Tensor();
  });
  return ShardedModule(group);
}

OuterDpSharding parse_outer_dp_sharding(std::string_view text) {
  if (text == "no_shard") return OuterDpSharding::no_shard;
  if (text == "optim") return OuterDpSharding::optim;
  throw UsageError(
      fmt::format("'{}' is no strategy for replicas of divided parameters; expected no_shard or optim", text));
}

const std::vector<std::string>& ShardedModule::parameters() const { return group_->parameters(); }
bool ShardedModule::is_shared() const { return group_->is_shared(); }
bool ShardedModule::is_unsharded() const { return group_->is_whole(); }
int64_t ShardedModule::stored_bytes() const { return group_->stored_bytes(); }
int64_t ShardedModule::copy_bytes() const { return group_->copy_bytes(); }

int64_t ShardedModule::all_stored_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : group_->all->groups()) bytes += group->stored_bytes();
  return bytes;
}
int64_t ShardedModule::all_copy_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : group_->all->groups()) bytes += group->copy_bytes();
  return bytes;
}

int64_t ShardedModule::all_given_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : group_->all->groups())
    bytes += group->is_shared() ? group->copy_bytes() / group->ranks().size() : 0;
  return bytes;
}

void ShardedModule::unshard() const { group_->unshard(); }
void ShardedModule::reshard() const { group_->reshard(); }
void ShardedModule::set_reshard_after_forward(bool on) const { group_->set_reshard_after_forward(on); }
void ShardedModule::set_prefetch(int groups) const {
  TUTTI_CHECK(groups >= 0, "set_prefetch: {} groups; expected 0 or more", groups);
  group_->all->prefetched = groups;
}
void ShardedModule::set_modules_to_forward_prefetch(std::span<nn::Module* const> modules) const {
  group_->forward_prefetch = groups_of(modules, *group_->all, "set_modules_to_forward_prefetch");
}
void ShardedModule::set_modules_to_backward_prefetch(std::span<nn::Module* const> modules) const {
  group_->backward_prefetch = groups_of(modules, *group_->all, "set_modules_to_backward_prefetch");
}

UnshardedScope::UnshardedScope(const ShardedModule& root) : root_(root.group_) {
  ++root_->all->holds;
  for (const auto& group : root_->all->groups()) group->unshard();
}

UnshardedScope::~UnshardedScope() {
  if (--root_->all->holds > 0) return;
  for (const auto& group : root_->all->groups()) {
    if (group->reshards_after_forward()) group->reshard();
  }
}

}  // namespace tutti::parallel

#include "tutti/parallel/fully_shard.h"

#include <algorithm>
#include <numeric>

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/module_call.h"
#include "tutti/parallel/parameter_copies.h"
#include "tutti/parallel/same_call.h"
#include "tutti/parallel/shard_group.h"
#include "tutti/parallel/shard_layout.h"
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
int64_t checked_reshard_degree(const ReshardAfterForward& reshard, comm::ProcessGroup& group) {
  const int64_t ranks = group.size();
  if (const bool* gives_back = std::get_if<bool>(&reshard)) return *gives_back ? ranks : 1;
  const int64_t degree = std::get<int64_t>(reshard);
  std::string divisors;
  for (int64_t d = 1; d <= ranks; ++d) {
    if (ranks % d == 0)
      divisors += fmt::format("{}{}{}", divisors.empty() ? "" : ", ", d,
                              d == 1       ? " (false)"
                              : d == ranks ? " (true)"
                                           : "");
  }
  TUTTI_CHECK(degree >= 1 && degree <= ranks && ranks % degree == 0,
              "fully_shard: reshard_after_forward = {}: groups of {} do not make up the {} ranks that divide the "
              "parameters; expected {}",
              degree, degree, ranks, divisors);
  TUTTI_CHECK(degree == 1 || degree == ranks || !shares_memory(group),
              "fully_shard: reshard_after_forward = {}: the {} ranks read one copy of the parameters in the memory of "
              "their host, gather nothing "
              "and have nothing to give back; expected true or false, which change nothing here, or ranks on a "
              "transport between hosts, such as gloo",
              degree, ranks);
  return degree;
}

// Whether one of them has all ranks of the other.
bool are_nested(const std::vector<int>& a, const std::vector<int>& b) {
  const std::vector<int>&few = a.size() < b.size() ? a : b, &many = a.size() < b.size() ? b : a;
  return std::ranges::all_of(few, [&](int rank) { return std::ranges::count(many, rank) == 1; });
}

// The parameters that a call takes of its modules.
struct Taken {
  struct Parameter {
    nn::NamedParameter named;
    int dim;        // that is cut
    Tensor memory;  // for the master; undefined: none
  };
  std::vector<Parameter> parameters;
  std::vector<std::string> ignored;
  std::vector<std::shared_ptr<ShardGroup>> inside;  // that took their parameters before
  int64_t reshard_degree;
};

bool is_among(const std::vector<const nn::Module*>& modules, const nn::Module* module) {
  return std::ranges::find(modules, module) != modules.end();
}

// A module comes after those inside it, and once.
void check_order(const nn::Module& module, const std::string& parameter, const ShardGroup& owner) {
  for (const auto& group : owner.all->groups()) {
    TUTTI_CHECK(!is_among(group->modules, &module),
                "fully_shard: module '{}' was sharded before; call it once per module", group->name());
    TUTTI_CHECK(!is_among(group->modules_below, &module),
                "fully_shard: module '{}' lies in '{}', which was sharded before it with parameters such as '{}'; go "
                "from the inside out: call fully_shard() for the modules inside first, and for '{}' last",
                module.call_name(), group->name(), parameter, group->name());
  }
}

int checked_dim(const nn::NamedParameter& p, const FullyShardOptions& options) {
  const int ndim = p.parameter.sizes().ndim();
  TUTTI_CHECK(ndim > 0, "fully_shard: parameter '{}' is a scalar, which cannot be divided; give it the sizes [1]",
              p.name);
  const int dim = options.shard_dim ? options.shard_dim(p) : 0;
  TUTTI_CHECK(dim >= -ndim && dim < ndim, "fully_shard: parameter '{}' is {}; it has no dim {} to cut", p.name,
              p.parameter.sizes(), dim);
  return dim < 0 ? dim + ndim : dim;
}

Tensor checked_memory(const nn::NamedParameter& p, const FullyShardOptions& options) {
  if (!options.memory) return {};
  TUTTI_CHECK(!p.parameter.is_materialized() || !dist::is_dtensor(p.parameter.master()),
              "fully_shard: the parameter '{}' is divided already; memory of one's own is for whole parameters",
              p.name);
  return options.memory(p);
}

// The parameters that this rank would take. Changes nothing.
Taken take(std::span<nn::Module* const> modules, const dist::Mesh& mesh, const FullyShardOptions& options) {
  Taken taken;
  const bool is_root = modules[0]->call_name().empty();
  taken.reshard_degree =
      checked_reshard_degree(options.reshard_after_forward.value_or(!is_root), *mesh->group(mesh->ndim() - 1));
  for (const nn::Module* const module : modules) {
    const std::string name = module->call_name();
    for (const nn::NamedParameter& p : module->named_parameters(name.empty() ? name : name + ".")) {
      const auto is_it = [&](const nn::Parameter& q) { return q.is_same(p.parameter); };
      if (std::ranges::any_of(options.ignored_params, is_it)) {
        taken.ignored.push_back(p.name);
      } else if (std::ranges::any_of(taken.parameters,
                                     [&](const Taken::Parameter& q) { return is_it(q.named.parameter); })) {
        continue;
      } else if (const StoragePlacement* before = placement_of(p.parameter)) {
        const auto group = before->group.lock();
        TUTTI_ASSERT(group != nullptr, "parameter '{}' has outlived its shard group", p.name);
        check_order(*module, p.name, *group);
        if (std::ranges::find(taken.inside, group) == taken.inside.end()) taken.inside.push_back(group);
      } else {
        taken.parameters.push_back({p, checked_dim(p, options), checked_memory(p, options)});
      }
    }
  }
  return taken;
}

// The arguments that must be the same on all ranks.
std::vector<CallFact> facts_of(std::span<nn::Module* const> modules, const Taken& taken, const dist::Mesh& mesh,
                               const FullyShardOptions& options) {
  const auto quoted = [](std::string list, const std::string& name) {
    return list + (list.empty() ? "'" : ", '") + name + "'";
  };
  std::string names, inside;
  for (const nn::Module* const module : modules) names = quoted(names, module->call_name());
  for (const auto& group : taken.inside) inside = quoted(inside, group->name());
  std::vector<CallFact> facts{
      {"modules", names},
      {"mesh", mesh->to_string()},
      {"reshard_after_forward", fmt::format("to {} ranks", taken.reshard_degree)},
      {"outer_dp_sharding_strategy",
       options.outer_dp_sharding_strategy == OuterDpSharding::optim ? "optim" : "no_shard"},
      {"ignored_params", std::accumulate(taken.ignored.begin(), taken.ignored.end(), std::string(), quoted)},
      {"sharded before", inside}};
  for (const Taken::Parameter& p : taken.parameters) {
    const nn::Parameter& parameter = p.named.parameter;
    const bool has_memory = parameter.is_materialized();
    std::string value =
        fmt::format("{} {}, read as {}, cut on dim {}, {}, {}", parameter.sizes(), name_of(parameter.dtype()),
                    name_of(parameter.use_dtype()), p.dim, parameter.requires_grad() ? "trained" : "frozen",
                    has_memory ? "with values" : "without values");
    if (has_memory && dist::is_dtensor(parameter.master()))
      value += ", " + dist::spec_of(parameter.master()).to_string();
    if (p.memory.defined()) value += ", in memory of its own";
    facts.push_back({fmt::format("parameter '{}'", p.named.name), std::move(value)});
  }
  return facts;
}

// The groups of modules inside become groups of the same model.
void adopt(const std::shared_ptr<ShardGroup>& group, const std::vector<std::shared_ptr<ShardGroup>>& inside) {
  group->all = std::make_shared<ShardGroups>();
  for (const auto& inner : inside) {
    if (inner->all == group->all) continue;
    const std::shared_ptr<ShardGroups> before = inner->all;
    for (const auto& g : before->groups()) g->all = group->all;
    group->all->take_all(*before);
  }
  group->all->add(group);
}

// Forward of the first module begins and that of the last one ends what the group does around forward.
void add_hooks(const std::shared_ptr<ShardGroup>& group, std::span<nn::Module* const> modules) {
  modules.front()->forward_hooks().before([weak = std::weak_ptr(group)](const nn::Module&, std::vector<Tensor>&) {
    if (const auto living = weak.lock()) living->before_forward();
  });
  modules.back()->forward_hooks().after([weak = std::weak_ptr(group)](const nn::Module&, const Tensor& output) {
    if (const auto living = weak.lock()) living->after_forward(output);
    return Tensor();
  });
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
  Taken taken;
  check_same_call(*mesh, "fully_shard", [&] {
    taken = take(modules, mesh, options);
    return facts_of(modules, taken, mesh, options);
  });
  bool replicas_divide =
      options.outer_dp_sharding_strategy == OuterDpSharding::optim && mesh->ndim() == 2 && mesh->size(0) > 1;
  if (replicas_divide) {
    const dist::Mesh all = mesh->flatten("");
    if (shares_memory(*all->group())) {  // they read one copy
      mesh = all;
      replicas_divide = false;
      if (taken.reshard_degree > 1) taken.reshard_degree = all->size();
    }
  }
  for (const auto& inner : taken.inside) {
    TUTTI_CHECK(are_nested(inner->ranks().world_ranks(), mesh->group(mesh->ndim() - 1)->world_ranks()),
                "fully_shard: parameters of '{}' were sharded over {}, and this call is for {}; a model has one mesh, "
                "or modules inside have some of its ranks, or more",
                inner->name(), inner->parameters().mesh()->to_string(), mesh->to_string());
  }
  std::vector<StoredParameter> stored;
  for (const Taken::Parameter& p : taken.parameters) {
    stored.push_back(stored_as(p.named, mesh, p.dim, replicas_divide));
    stored.back().memory = p.memory;
  }
  const std::string name = modules[0]->call_name();
  const auto group = ShardGroup::make(name.empty() ? "the model" : name, stored, mesh, taken.reshard_degree);
  for (nn::Module* const module : modules) {
    group->modules.push_back(module);
    for (const nn::NamedModule& below : module->named_modules()) group->modules_below.push_back(below.module);
  }
  adopt(group, taken.inside);
  if (!group->is_shared()) add_hooks(group, modules);
  return ShardedModule(group);
}

OuterDpSharding parse_outer_dp_sharding(std::string_view text) {
  if (text == "no_shard") return OuterDpSharding::no_shard;
  if (text == "optim") return OuterDpSharding::optim;
  throw UsageError(
      fmt::format("'{}' is no strategy for replicas of divided parameters; expected no_shard or optim", text));
}

}  // namespace tutti::parallel

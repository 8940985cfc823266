#include "tutti/dist/dtensor.h"

#include <algorithm>

#include <fmt/format.h>

#include "tutti/autograd/tape.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/dist/conversion_ops.h"
#include "tutti/dist/moves.h"
#include "tutti/dist/redistribute.h"
#include "tutti/dist/replicas.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"

namespace tutti::dist {
namespace {

const DTensorSpec& make_spec(const Mesh& mesh, Placements placements, const Extents& sizes, DType dtype,
                             const LayoutOptions& layout, const char* where) {
  TUTTI_CHECK(mesh != nullptr, "{}: the mesh is null", where);
  if (placements.empty()) placements.resize(static_cast<size_t>(mesh->ndim()));
  return DTensorSpec::of({.mesh_id = mesh->id(),
                          .mesh_shape = mesh->shape(),
                          .placements = std::move(placements),
                          .order = layout.order,
                          .sizes = sizes,
                          .dtype = dtype,
                          .cut = layout.cut},
                         where);
}

// The spec of `t` in another layout.
const DTensorSpec& spec_in(const Tensor& t, Placements placements, const LayoutOptions& layout, const char* where) {
  const Part& part = part_of(t, where);
  return make_spec(part.mesh, std::move(placements), part.spec->sizes(), part.spec->dtype(), layout, where);
}

LayoutOptions layout_of(const DTensorSpec& spec) { return {.order = spec.order(), .cut = spec.cut()}; }

// The layout of cotangents: as asked for, or by default.
const DTensorSpec& cotangents_of(const DTensorSpec& spec, const std::optional<Placements>& asked, const char* where) {
  if (!asked) return cotangent_spec(spec);
  TUTTI_CHECK(asked->size() == spec.placements().size(), "{}: grad_placements {} for {} mesh dims; give one per dim",
              where, to_string(*asked), spec.placements().size());
  const DTensorSpec& cotangents = spec.with(*asked);
  for (size_t axis = 0; axis < asked->size(); ++axis) {
    const Placement &grad = cotangents.placements()[axis], &value = spec.placements()[axis];
    TUTTI_CHECK(!grad.is_shard() || !value.is_shard() || grad == value,
                "{}: grad_placements {} shard another dim than the tensor {}: a part's cotangent has the part's sizes",
                where, to_string(*asked), spec.to_string());
    TUTTI_CHECK(
        grad.is_shard() == value.is_shard(),
        "{}: grad_placements {} and the tensor {} differ in what is sharded: a part's cotangent has the part's sizes",
        where, to_string(*asked), spec.to_string());
    TUTTI_CHECK(!grad.is_partial() || !value.is_partial(),
                "{}: grad_placements {} for the tensor {}: mesh dim {} holds terms, and the cotangent of each term is "
                "that of the whole; use Replicate there",
                where, to_string(*asked), spec.to_string(), axis);
    TUTTI_CHECK(!grad.is_partial() || grad.op() == PartialOp::sum || grad.op() == PartialOp::avg,
                "{}: grad_placements {}: cotangents that ranks hold in terms add up; use P(sum) on mesh dim {}", where,
                to_string(*asked), axis);
  }
  return cotangents;
}

// What is wrong with the part of this rank; "": nothing.
std::string fault_of_part(const Tensor& local, const DTensorSpec& spec, const DeviceMesh& mesh, const char* where) {
  if (!mesh.has_coordinate()) return "";
  const Extents wanted = spec.local_sizes(mesh.coordinate());
  if (local.extents() == wanted) return "";
  return fmt::format(
      "{}: this rank (place {} of {}) gives a part of {}, and {} leaves it {}; give the sizes of the whole, cut the "
      "part as tree_cut does, or pass Cut::chunk for torch.chunk",
      where, mesh.rank(), mesh.to_string(), local.extents(), spec.to_string(), wanted);
}

std::vector<int> all_axes(const DeviceMesh& mesh) {
  std::vector<int> axes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) axes.push_back(axis);
  return axes;
}

// All ranks say the same of the whole, no part is wrong, and replicas are equal. Every rank hears every other, so that
// all of them report a difference, or none.
void compare_ranks(const Tensor& local, const DTensorSpec& spec, const DeviceMesh& mesh, const std::string& fault) {
  const auto group = mesh.group_over(all_axes(mesh));
  const std::vector<std::string> said = group->all_gather_bytes(spec.to_string()),
                                 faults = group->all_gather_bytes(fault);
  for (size_t r = 0; r < said.size(); ++r) {
    TUTTI_CHECK(said[r] == said[0],
                "from_local: the part of rank {} makes the whole {}, that of rank {} {}; where parts are unequal, give "
                "the sizes of the whole",
                mesh.ranks()[0], said[0], mesh.ranks()[r], said[r]);
  }
  for (const std::string& other : faults) TUTTI_CHECK(other.empty(), "{}", other);
  require_replicas(local, spec, mesh, "from_local", "");
}

// Sums, and averages, are linear in their terms. Which term a maximum is of is not known where the terms are.
void check_differentiable(const DTensorSpec& spec, const char* where) {
  for (const Placement& p : spec.placements()) {
    TUTTI_CHECK(!p.is_partial() || p.op() == PartialOp::sum || p.op() == PartialOp::avg,
                "{}: terms of {} have no gradient, and the part requires one; use comm::functional::all_reduce(), "
                "which has, or detach() it",
                where, to_string(p));
  }
}

bool is_result(const Tensor& t) {
  const autograd::Meta* meta = autograd::meta_of(t);
  return meta != nullptr && meta->node != nullptr;
}

}  // namespace

const DTensorSpec& spec_of(const Tensor& t) {
  part_of(t, "spec_of");
  static_cast<void>(t.extents());  // a spec holds integers: they are fixed in a trace
  return spec_as_called(t);
}
const Mesh& mesh_of(const Tensor& t) { return part_of(t, "mesh_of").mesh; }
const Placements& placements_of(const Tensor& t) { return part_of(t, "placements_of").spec->placements(); }

Tensor distribute_tensor(const Tensor& t, const Mesh& mesh, Placements placements, const DistributeOptions& options) {
  constexpr const char* kWhere = "distribute_tensor";
  TUTTI_CHECK(t.defined(), "{}: the tensor is undefined", kWhere);
  const DTensorSpec& spec = make_spec(mesh, std::move(placements), t.extents(), t.dtype(), options.layout, kWhere);
  if (is_dtensor(t)) {
    TUTTI_CHECK(&spec_of(t) == &spec, "{}: the tensor is {} already, and {} is asked for; use redistribute()", kWhere,
                spec_of(t).to_string(), spec.to_string());
    return t;
  }
  TUTTI_CHECK(!is_result(t),
              "{}: the tensor {} is the result of a recorded op; distribute leaves, or use from_local() for parts with "
              "a history",
              kWhere, describe(t));
  TUTTI_CHECK(
      !spec.has_partial(),
      "{}: {} holds Partial placements, and a whole tensor has no terms; distribute it replicated, then redistribute()",
      kWhere, to_string(spec.placements()));
  TUTTI_CHECK(options.src_data_rank >= -1 && options.src_data_rank < mesh->size(),
              "{}: src_data_rank {} is not one of the {} ranks of {}; -1: no communication", kWhere,
              options.src_data_rank, mesh->size(), mesh->to_string());
  Tensor local;
  if (!mesh->has_coordinate()) {
    local = tutti::zeros({0}, t.dtype());
  } else {
    const StageScope below(0, mask_of(StagePlace::autograd));
    const DTensorSpec& whole = spec.with(Placements(static_cast<size_t>(mesh->ndim())));
    const Tensor plain = autograd::detached(t);
    local = options.src_data_rank < 0 ? Mover(whole, spec, *mesh).run(plain)
                                      : Mover::scatter(whole, spec, *mesh, options.src_data_rank).run(plain);
    if (local.storage().get() == plain.storage().get() && !options.shares_memory) local = clone(local);
    local = comm::functional::wait_tensor(local);
  }
  const Tensor result = wrap(std::move(local), spec, mesh);
  return requires_grad(t) ? requires_grad_(result) : result;
}

Tensor from_local(const Tensor& local, const Mesh& mesh, Placements placements, const FromLocalOptions& options) {
  constexpr const char* kWhere = "from_local";
  TUTTI_CHECK(mesh != nullptr, "{}: the mesh is null", kWhere);
  TUTTI_CHECK(local.defined() && !is_dtensor(local), "{}: the part of a rank is a plain tensor, and {} is not", kWhere,
              local.defined() ? describe(local) : "an undefined one");
  if (placements.empty()) placements.resize(static_cast<size_t>(mesh->ndim()));
  Extents sizes = local.extents();
  if (options.sizes) {
    sizes = *options.sizes;
  } else {
    for (size_t axis = 0; axis < placements.size() && axis < mesh->shape().size(); ++axis) {
      if (!placements[axis].is_shard()) continue;
      sizes[static_cast<size_t>(normalize_dim(placements[axis].dim(), local.ndim(), kWhere))] *= mesh->shape()[axis];
    }
  }
  const DTensorSpec& spec = make_spec(mesh, std::move(placements), sizes, local.dtype(), options.layout, kWhere);
  const std::string fault = fault_of_part(local, spec, *mesh, kWhere);
  if (options.run_check && mesh->has_coordinate()) compare_ranks(local, spec, *mesh, fault);
  if (requires_grad(local) && is_grad_enabled()) check_differentiable(spec, kWhere);
  TUTTI_CHECK(fault.empty(), "{}", fault);
  return convert_from_local(local.dtype() == spec.local_dtype() ? local : cast(local, spec.local_dtype()), spec,
                            cotangents_of(spec, options.grad_placements, kWhere));
}

Tensor to_local(const Tensor& t, std::optional<Placements> grad_placements) {
  return convert_to_local(t, cotangents_of(*part_of(t, "to_local").spec, grad_placements, "to_local"));
}

Tensor full_tensor(const Tensor& t, std::optional<Placements> grad_placements) {
  const Part& part = part_of(t, "full_tensor");
  return to_local(convert_layout(t, part.spec->with(Placements(part.spec->placements().size()))),
                  std::move(grad_placements));
}

Tensor redistribute(const Tensor& t, Placements placements, const RedistributeOptions& options) {
  TUTTI_CHECK(!placements.empty(), "redistribute: no placements are given; give one per mesh dim");
  const LayoutOptions layout = options.layout ? *options.layout : layout_of(*part_of(t, "redistribute").spec);
  return convert_layout(t, spec_in(t, std::move(placements), layout, "redistribute"), options.async_op);
}

Tensor redistribute(const Tensor& t, const Mesh& mesh, Placements placements, const RedistributeOptions& options) {
  const Part& part = part_of(t, "redistribute");
  TUTTI_CHECK(mesh != nullptr, "redistribute: the mesh is null");
  if (part.mesh->id() == mesh->id()) return redistribute(t, std::move(placements), options);
  const DTensorSpec& to = make_spec(mesh, std::move(placements), part.spec->sizes(), part.spec->dtype(),
                                    options.layout.value_or(LayoutOptions{}), "redistribute");
  TUTTI_CHECK(!to.has_partial() && !part.spec->has_partial(),
              "redistribute: from {} on {} to {} on {}: terms cannot change their mesh; reduce them first",
              part.spec->to_string(), part.mesh->to_string(), to.to_string(), mesh->to_string());
  const StageScope below(0, static_cast<StageMask>(mask_of(StagePlace::autograd) | mask_of(StagePlace::sharding)));
  const Mover mover = Mover::across(*part.spec, *part.mesh, to, *mesh);
  const Extents sizes = mesh->has_coordinate() ? to.local_sizes(mesh->coordinate()) : Extents{0};
  Tensor moved =
      options.async_op ? moved_later(mover, part.local, sizes) : comm::functional::wait_tensor(mover.run(part.local));
  if (moved.storage().get() == part.local.storage().get()) moved = clone(moved);
  return wrap(std::move(moved), to, mesh);
}

bool equal(const Tensor& a, const Tensor& b) {
  const Part &pa = part_of(a, "equal"), &pb = part_of(b, "equal");
  TUTTI_CHECK(pa.mesh->id() == pb.mesh->id(), "equal: {} and {} are on different meshes", describe(a), describe(b));
  if (!(pa.spec->sizes() == pb.spec->sizes()) || pa.spec->dtype() != pb.spec->dtype()) return false;
  const DTensorSpec& layout = cotangent_spec(*pa.spec);
  const Tensor x = to_contiguous(redistributed_part(a, layout)), y = to_contiguous(redistributed_part(b, layout));
  bool same = true;
  const char *p = static_cast<const char*>(x.raw_data()), *q = static_cast<const char*>(y.raw_data());
  const int64_t item = itemsize(x.dtype());
  for (int64_t i = 0; same && i < x.numel(); ++i) {
    // Zeros of both signs are equal, and NaN equals nothing.
    if (is_floating(x.dtype()))
      same = load_as_double(p + i * item, x.dtype()) == load_as_double(q + i * item, y.dtype());
    else same = std::equal(p + i * item, p + (i + 1) * item, q + i * item);
  }
  if (!pa.mesh->has_coordinate()) return same;
  int32_t all[] = {same ? 1 : 0};
  pa.mesh->group_over(all_axes(*pa.mesh))->all_reduce_values<int32_t>(all, comm::ReduceKind::min);
  return all[0] == 1;
}

// The layout in which the ranks hold parts of these sizes, by place in the mesh. UsageError, on all ranks alike, if
// there is none.
static const DTensorSpec& spec_of_parts(const std::vector<Extents>& parts, Placements placements, DType dtype,
                                        const Mesh& mesh, const std::string& where) {
  const auto coordinates = coordinates_of(mesh->shape());
  if (placements.empty()) placements.resize(mesh->shape().size());
  TUTTI_CHECK(placements.size() == mesh->shape().size(),
              "{}: {} placements {} for the {} dims of the mesh; give one per dim", where, placements.size(),
              to_string(placements), mesh->ndim());
  for (size_t r = 0; r < parts.size(); ++r) {
    TUTTI_CHECK(parts[r].ndim() == parts[0].ndim(), "{}: it has {} dims on rank {} and {} on rank {}", where,
                parts[0].ndim(), mesh->ranks()[0], parts[r].ndim(), mesh->ranks()[r]);
  }
  // Along the axes that shard a dim, parts add up to the whole.
  Extents sizes = parts[0];
  for (int d = 0; d < sizes.ndim(); ++d) {
    int64_t sum = 0;
    for (size_t r = 0; r < parts.size(); ++r) {
      bool counts = true;
      for (size_t axis = 0; axis < placements.size(); ++axis) {
        const bool shards =
            placements[axis].is_shard() && normalize_dim(placements[axis].dim(), sizes.ndim(), "local_map") == d;
        counts = counts && (shards || coordinates[r][axis] == 0);
      }
      if (counts) sum += parts[r][static_cast<size_t>(d)];
    }
    sizes[static_cast<size_t>(d)] = sum;
  }
  std::string said;
  for (const Cut cut : {Cut::halving, Cut::chunk}) {
    const DTensorSpec& spec = make_spec(mesh, placements, sizes, dtype, {.cut = cut}, where.c_str());
    size_t fits = 0;
    while (fits < parts.size() && parts[fits] == spec.local_sizes(coordinates[fits])) ++fits;
    if (fits == parts.size()) return spec;
    said = fmt::format("{}: together the parts are {}, of which rank {} gives {} where {} is its part", where,
                       spec.to_string(), mesh->ranks()[fits], parts[fits], spec.local_sizes(coordinates[fits]));
  }
  throw UsageError(said);
}

std::vector<Tensor> local_map(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn,
                              std::span<const Tensor> inputs, const LocalMapOptions& options) {
  constexpr const char* kWhere = "local_map";
  TUTTI_CHECK(!inputs.empty(), "{}: without inputs there is no mesh; give one, or use from_local()", kWhere);
  const Mesh mesh = part_of(inputs[0], kWhere).mesh;
  const auto check_count = [&](size_t given, size_t wanted, const char* what) {
    TUTTI_CHECK(given == 0 || given == wanted, "{}: {} {} for {} tensors; give one each", kWhere, given, what, wanted);
  };
  check_count(options.in_placements.size(), inputs.size(), "in_placements");
  check_count(options.in_grad_placements.size(), inputs.size(), "in_grad_placements");
  std::vector<Tensor> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor input = inputs[i];
    TUTTI_CHECK(part_of(input, kWhere).mesh->id() == mesh->id(), "{}: input {} is on {}, the first on {}", kWhere, i,
                mesh_of(input)->to_string(), mesh->to_string());
    if (!options.in_placements.empty()) {
      const DTensorSpec& wanted = spec_in(input, options.in_placements[i], layout_of(spec_of(input)), kWhere);
      TUTTI_CHECK(&wanted == &spec_of(input) || options.redistribute_inputs,
                  "{}: input {} is {}, and in_placements say {}; redistribute() it, or set redistribute_inputs", kWhere,
                  i, spec_of(input).to_string(), to_string(wanted.placements()));
      input = convert_layout(input, wanted);
    }
    parts.push_back(to_local(
        input, options.in_grad_placements.empty() ? std::optional<Placements>() : options.in_grad_placements[i]));
  }
  const std::vector<Tensor> results = fn(parts);
  check_count(options.out_placements.size(), results.size(), "out_placements");
  TUTTI_CHECK(options.out_placements.size() == results.size(), "{}: {} results and {} out_placements; give one each",
              kWhere, results.size(), options.out_placements.size());
  if (!mesh->has_coordinate()) return results;
  std::vector<Tensor> wrapped;
  const auto group = mesh->group_over(all_axes(*mesh));
  for (size_t k = 0; k < results.size(); ++k) {
    const Extents own = results[k].extents();
    std::vector<Extents> parts_of_ranks;
    for (const std::string& bytes :
         group->all_gather_bytes({reinterpret_cast<const char*>(own.begin()), own.size() * sizeof(int64_t)})) {
      Extents& part = parts_of_ranks.emplace_back(bytes.size() / sizeof(int64_t), 0);
      std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(part.begin()));
    }
    const DTensorSpec& spec = spec_of_parts(parts_of_ranks, options.out_placements[k], results[k].dtype(), mesh,
                                            fmt::format("local_map: result {}", k));
    wrapped.push_back(
        from_local(results[k], mesh, spec.placements(), {.layout = layout_of(spec), .sizes = spec.sizes()}));
  }
  return wrapped;
}

}  // namespace tutti::dist

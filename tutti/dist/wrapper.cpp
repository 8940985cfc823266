#include "tutti/dist/wrapper.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/dist/conversion_ops.h"
#include "tutti/dist/redistribute.h"
#include "tutti/graph/trace.h"
#include "tutti/ops/cast.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::dist {
namespace {

constexpr ExtensionKind kPart{"distributed"};

class Elsewhere final : public StoragePlaceholder, public FreeListed<Elsewhere> {
 public:
  explicit Elsewhere(const DTensorSpec& spec) : StoragePlaceholder(StorageState::sharded), spec_(spec) {}
  [[noreturn]] void refuse_data() const override {
    throw UsageError(fmt::format("the elements of the distributed tensor {} were asked for, which its ranks hold; take to_local() for the part of this rank, "
                                 "or full_tensor() for the whole", spec_.to_string()));
  }

 private:
  const DTensorSpec& spec_;
};

// What compiled functions keep of a distributed tensor: its layout, and of its mesh no more than how to find it.
class PartForm final : public WrapperForm {
 public:
  // strides: of the whole; empty: dense.
  PartForm(const DTensorSpec& spec, std::weak_ptr<const DeviceMesh> mesh, std::string mesh_name, Extents strides)
      : spec_(spec), mesh_(std::move(mesh)), mesh_name_(std::move(mesh_name)), strides_(strides) {}

  // Ranks that are threads may share a compiled function, and what was traced on one is of no use to another.
  bool is_of(const DTensorSpec& spec) const { return &spec == &spec_ && rank_ == &RankContext::current() && !mesh_.expired(); }

  Tensor around(Tensor inside) const override {
    const Mesh mesh = mesh_.lock();
    TUTTI_CHECK(mesh != nullptr, "a compiled function makes the distributed tensor {}, and {} no longer exists on this rank; keep a handle of it as long as the function is called", spec_.to_string(),
                mesh_name_);
    Tensor made = wrap(std::move(inside), spec_, mesh);
    if (strides_.empty()) return made;
    return wrap_view(Tensor::over(made.storage(), spec_.sizes(), strides_, 0, spec_.dtype()), part_of(made, "compile").local, spec_, mesh);
  }

  Tensor elements_of(const Tensor& t) const override {
    const Part& part = part_of(t, "backward of a compiled function");
    SpecFields fields = spec_.fields();
    fields.dtype = part.spec->dtype();
    const DTensorSpec& wanted = fields.dtype == spec_.dtype() ? spec_ : DTensorSpec::of(std::move(fields), "backward of a compiled function");
    const Tensor moved = redistributed_part(t, wanted);
    return moved.dtype() == spec_.local_dtype() ? moved : cast(moved, spec_.local_dtype());
  }

  std::shared_ptr<const WrapperForm> of_cotangent() const override { return std::make_shared<PartForm>(cotangent_spec(spec_), mesh_, mesh_name_, Extents()); }
  std::string description() const override { return fmt::format("{} on {}", spec_.to_string(), mesh_name_); }

 private:
  const DTensorSpec& spec_;
  const std::weak_ptr<const DeviceMesh> mesh_;
  const std::string mesh_name_;
  const Extents strides_;
  const RankContext* const rank_ = &RankContext::current();
};

}  // namespace

const Part& part_of(const Tensor& t, const char* where) {
  const Part* part = t.extensions().find<Part>(kPart);
  TUTTI_CHECK(part != nullptr, "{}: the tensor {} is not distributed; make it so with distribute_tensor() or from_local()", where, describe(t));
  return *part;
}

Tensor part_in_whole(const Tensor& whole, const DTensorSpec& spec, std::span<const int64_t> coordinate) {
  const Extents strides = whole.strides();
  int64_t offset = whole.offset();
  for (size_t d = 0; d < spec.sizes().size(); ++d) {
    const IndexSet held = spec.indices(static_cast<int>(d), coordinate);
    TUTTI_ASSERT(held.is_range(), "dim {} of {} is no range on one rank", d, spec.to_string());
    if (!held.ranges().empty()) offset += held.ranges()[0].begin * strides[d];
  }
  return whole.view_as(spec.local_sizes(coordinate), strides, offset);
}

Tensor wrap(Tensor local, const DTensorSpec& spec, const Mesh& mesh) {
  const int64_t nbytes = numel_of(spec.sizes()) * itemsize(spec.dtype());
  StorageRef storage = StorageRef::adopt(Storage::without_memory(nbytes, local.device(), std::make_unique<Elsewhere>(spec)));
  storage->share_version(*local.storage());
  return wrap_view(Tensor::over(std::move(storage), spec.sizes(), contiguous_strides(spec.sizes()), 0, spec.dtype()), std::move(local), spec, mesh);
}

Tensor wrap_view(Tensor view, Tensor local, const DTensorSpec& spec, const Mesh& mesh) {
  view.impl()->stages = static_cast<StageMask>(view.impl()->stages | stage());
  view.extensions().put(kPart, std::make_unique<Part>(spec, mesh, std::move(local)));
  return view;
}

std::string Part::description() const { return fmt::format("{} on {}", to_string(spec->placements()), mesh->to_string()); }

std::string Part::text() const {
  return fmt::format("DTensor(local={}, {} on {})", tutti::to_string(local), spec->to_string(), mesh->to_string());
}

// A trace must not keep what it made of older tensors with them, nor take what was made of them before: its graph computes both.
bool Part::may_note_here() const {
  const graph::Trace* trace = graph::Trace::current();
  return spec->has_partial() && (trace == nullptr || trace->is_traced(local));
}

const Tensor* Part::reduced_to(const DTensorSpec& wanted) const {
  return reduced_.spec == &wanted && reduced_.version == local.version() && may_note_here() ? &reduced_.part : nullptr;
}

void Part::note_reduced(const DTensorSpec& wanted, const Tensor& part) const {
  if (spec == &wanted || wanted.has_partial() || !may_note_here()) return;
  reduced_ = {&wanted, part, local.version()};
}

Tensor Part::whole(const Tensor& t) const { return redistributed_part(t, spec->with(Placements(spec->placements().size()))); }

Tensor Part::beside(const Tensor& plain) const {
  if (is_dtensor(plain)) return {};
  const DTensorSpec& replicated = DTensorSpec::of({.mesh_id = spec->mesh_id(), .mesh_shape = spec->mesh_shape(), .placements = Placements(spec->placements().size()),
                                                   .sizes = plain.extents(), .dtype = plain.dtype()});
  return wrap(plain, replicated, mesh);
}

std::shared_ptr<const WrapperForm> Part::form(const Tensor& t) const {
  return std::make_shared<PartForm>(*spec, mesh, mesh->to_string(), t.is_contiguous() ? Extents() : t.strides());
}

bool Part::has(const WrapperForm& form) const {
  const auto* of_part = dynamic_cast<const PartForm*>(&form);
  return of_part != nullptr && of_part->is_of(*spec);
}

// A gradient lies as its leaf does; one that is still to be added is added first, and the leaf has no pending parts.
Tensor Part::arriving(const Tensor& cotangent) const {
  const Part& arrived = part_of(cotangent, "backward");
  SpecFields fields = spec->fields();
  fields.dtype = cotangent.dtype();
  for (Placement& p : fields.placements) {
    if (p.is_partial()) p = Placement::replicate();
  }
  const DTensorSpec& wanted = DTensorSpec::of(std::move(fields), "backward");
  if (arrived.spec == &wanted) return {};
  return wrap(redistributed_part(cotangent, wanted), wanted, mesh);
}

}  // namespace tutti::dist

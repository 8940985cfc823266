#include "tutti/dist/wrapper.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/dist/conversion_ops.h"
#include "tutti/dist/redistribute.h"
#include "tutti/graph/held_wrappers.h"
#include "tutti/graph/trace.h"
#include "tutti/ops/cast.h"

namespace tutti::dist {

struct CopiedPart {
  Tensor local = {};      // undefined: nobody can write it, or this belongs to a trace and is not read after it
  uint32_t version = 0;   // of local when it was copied
  bool has_moved = true;  // else this rank alone may have had to copy it: from_local() got a part whose strides do not
                          // allow the view
};

namespace {

constexpr ExtensionKind kPart{"distributed"};

class Elsewhere final : public StoragePlaceholder, public FreeListed<Elsewhere> {
 public:
  explicit Elsewhere(const DTensorSpec& spec) : StoragePlaceholder(StorageState::sharded), spec_(spec) {}
  // Strides follow from sizes, so that an answer about them holds for these. How the dims of a dense whole lie does
  // not.
  bool decide(const Tensor& t, TensorQuestion question, const Shape& about) const override {
    if (about.empty() && part_of(t, "is_contiguous").is_dense) return question(as_called(t), about);
    concrete(t.sizes());
    return question(as_called(t), to_shape(concrete(about)));
  }
  [[noreturn]] void refuse_data() const override {
    throw UsageError(
        fmt::format("the elements of the distributed tensor {} were asked for, which its ranks hold; take to_local() "
                    "for the part of this rank, "
                    "or full_tensor() for the whole",
                    spec_.to_string()));
  }

 private:
  const DTensorSpec& spec_;
};

// The storage of a wrapper of so many elements around `local`, in the state of sharded ones and with the version of the
// part.
StorageRef elsewhere(const Tensor& local, const DTensorSpec& spec, int64_t elements) {
  StorageRef storage = StorageRef::adopt(
      Storage::without_memory(elements * itemsize(spec.dtype()), local.device(), std::make_unique<Elsewhere>(spec)));
  storage->share_version(*local.storage());
  return storage;
}

// The sizes of a wrapper of this spec around `local`, a tensor of a trace: those of the traced call.
Extents sizes_around(const DTensorSpec& spec, const Tensor& local) {
  Extents sizes = spec.sizes();
  for (int d = 0; d < sizes.ndim(); ++d) {
    if (spec.axes_of(d).empty()) sizes[static_cast<size_t>(d)] = local.impl()->extents[static_cast<size_t>(d)];
  }
  return sizes;
}

Tensor wrap_dense(Tensor local, const DTensorSpec& spec, const Mesh& mesh, std::shared_ptr<const CopiedPart> copied) {
  Extents of_trace;
  if (local.impl()->traced >= 0) of_trace = sizes_around(spec, local);
  const Extents& sizes = local.impl()->traced < 0 ? spec.sizes() : of_trace;
  StorageRef storage = elsewhere(local, spec, numel_of(sizes));
  return wrap_view(Tensor::over(std::move(storage), sizes, contiguous_strides(sizes), 0, spec.dtype()),
                   std::move(local), spec, mesh, true, std::move(copied));
}

// A copy of a copy shows what that one does.
std::shared_ptr<const CopiedPart> copied_from(const Part& of, bool has_moved) {
  return of.copied != nullptr ? of.copied : std::make_shared<const CopiedPart>(of.local, of.local.version(), has_moved);
}

std::string reason_of(const CopiedPart& copied) {
  if (copied.has_moved) return "because the elements that it shows had to be moved";
  return fmt::format("because the strides {} of the part {} of this rank do not allow it, as those of other ranks may",
                     copied.local.strides(), describe(copied.local));
}

// What compiled functions keep of a distributed tensor: its layout, and of its mesh no more than how to find it.
class PartForm final : public WrapperForm {
 public:
  // strides: of the whole; empty: dense.
  // is_copy: a view that does not share the memory of its tensor.
  PartForm(const DTensorSpec& spec, std::weak_ptr<const DeviceMesh> mesh, std::string mesh_name, Extents strides,
           bool is_copy)
      : spec_(spec), mesh_(std::move(mesh)), mesh_name_(std::move(mesh_name)), strides_(strides), is_copy_(is_copy) {}

  // Meshes that were made one by one of equal ranks have one id, and so one spec, but not the same groups.
  bool is_of(const Part& part) const {
    if (part.spec != &spec_ || (part.copied != nullptr) != is_copy_) return false;
    const Mesh mesh = mesh_.lock();
    return mesh != nullptr && mesh->has_groups_of(*part.mesh);
  }

  Tensor around(Tensor inside, const Tensor& of) const override {
    const Mesh mesh = mesh_.lock();
    TUTTI_CHECK(mesh != nullptr,
                "a compiled function makes the distributed tensor {}, and {} no longer exists on this rank; keep a "
                "handle of it as long as the function is called",
                spec_.to_string(), mesh_name_);
    std::shared_ptr<const CopiedPart> copied;
    if (is_copy_)
      copied =
          of.defined() ? copied_from(part_of(of, "a compiled function"), true) : std::make_shared<const CopiedPart>();
    if (strides_.empty()) return wrap_dense(std::move(inside), spec_, mesh, copied);
    // A view may reach further than it has elements.
    int64_t reach = numel_of(spec_.sizes()) == 0 ? 0 : 1;
    for (size_t d = 0; d < strides_.size() && reach > 0; ++d) reach += (spec_.sizes()[d] - 1) * strides_[d];
    StorageRef storage = elsewhere(inside, spec_, reach);
    return wrap_view(Tensor::over(std::move(storage), spec_.sizes(), strides_, 0, spec_.dtype()), std::move(inside),
                     spec_, mesh, false, copied);
  }

  Tensor elements_of(const Tensor& t) const override {
    const Part& part = part_of(t, "backward of a compiled function");
    SpecFields fields = spec_.fields();
    fields.dtype = part.spec->dtype();
    const DTensorSpec& wanted =
        fields.dtype == spec_.dtype() ? spec_ : DTensorSpec::of(std::move(fields), "backward of a compiled function");
    const Tensor moved = redistributed_part(t, wanted);
    return moved.dtype() == spec_.local_dtype() ? moved : cast(moved, spec_.local_dtype());
  }

  std::shared_ptr<const WrapperForm> for_inside(const Extents& sizes) const override {
    SpecFields fields = spec_.fields();
    for (int d = 0; d < fields.sizes.ndim(); ++d) {
      const auto at = static_cast<size_t>(d);
      if (spec_.axes_of(d).empty()) fields.sizes[at] = sizes[at];
    }
    return std::make_shared<PartForm>(DTensorSpec::of(std::move(fields), "compile"), mesh_, mesh_name_, strides_,
                                      is_copy_);
  }

  std::shared_ptr<const WrapperForm> of_cotangent() const override {
    return std::make_shared<PartForm>(cotangent_spec(spec_), mesh_, mesh_name_, Extents(), false);
  }
  std::string description() const override { return fmt::format("{} on {}", spec_.to_string(), mesh_name_); }

 private:
  const DTensorSpec& spec_;
  const std::weak_ptr<const DeviceMesh> mesh_;
  const std::string mesh_name_;
  const Extents strides_;
  const bool is_copy_;
};

}  // namespace

const Part& part_of(const Tensor& t, const char* where) {
  const Part* part = t.extensions().find<Part>(kPart);
  TUTTI_CHECK(part != nullptr,
              "{}: the tensor {} is not distributed; make it so with distribute_tensor() or from_local()", where,
              describe(t));
  part->check_read(where);
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
  return wrap_dense(std::move(local), spec, mesh, nullptr);
}

Tensor wrap_copy(Tensor local, const DTensorSpec& spec, const Mesh& mesh, const Part& of, bool has_moved) {
  local.storage()->set_read_only();
  return wrap_dense(std::move(local), spec, mesh, copied_from(of, has_moved));
}

Tensor wrap_view(Tensor view, Tensor local, const DTensorSpec& spec, const Mesh& mesh, bool is_dense,
                 std::shared_ptr<const CopiedPart> copied) {
  view.impl()->stages = static_cast<StageMask>(view.impl()->stages | stage());
  const DTensorSpec* own = &spec;
  if (local.impl()->traced >= 0) {
    SpecFields fields = spec.fields();
    for (int d = 0; d < view.ndim(); ++d) {
      const auto at = static_cast<size_t>(d);
      if (!spec.axes_of(d).empty()) {
        if (local.sizes()[at].is_symbolic())
          graph::refuse_symbols(fmt::format("the size of dim {} of {} is divided over ranks", d, spec.to_string()));
        continue;
      }
      view.impl()->sizes[at] = local.sizes()[at];
      fields.sizes[at] = graph::size_for_choices(local.sizes()[at]);
    }
    view.impl()->traced = 0;  // no tensor of the trace: its part is
    own = &DTensorSpec::of(std::move(fields), "compile");
  }
  auto part = std::make_unique<Part>(*own, mesh, std::move(local), is_dense);
  part->copied = std::move(copied);
  view.extensions().put(kPart, std::move(part));
  return view;
}

Tensor for_choices(const Tensor& wrapper) {
  if (wrapper.impl()->traced < 0 || !is_dtensor(wrapper)) return wrapper;
  const Part& part = part_of(wrapper, "compile");
  const Extents& sizes = part.spec->sizes();
  Tensor t = Tensor::over(elsewhere(part.local, *part.spec, numel_of(sizes)), sizes, contiguous_strides(sizes), 0,
                          part.spec->dtype());
  t.impl()->stages = wrapper.impl()->stages;
  t.extensions().put(kPart, part.for_alias());
  return t;
}

const DTensorSpec& spec_as_called(const Tensor& wrapper) {
  const Part& part = part_of(wrapper, "compile");
  if (wrapper.impl()->traced < 0) return *part.spec;
  SpecFields fields = part.spec->fields();
  fields.sizes = wrapper.impl()->extents;
  return DTensorSpec::of(std::move(fields), "compile");
}

Tensor as_called(const Tensor& wrapper) {
  if (wrapper.impl()->traced < 0 || !is_dtensor(wrapper)) return wrapper;
  Tensor t = wrapper.alias();
  t.impl()->sizes = to_shape(t.impl()->extents);
  t.impl()->traced = -1;
  return t;
}

std::unique_ptr<TensorExtension> Part::for_alias() const {
  auto part = std::make_unique<Part>(*spec, mesh, local, is_dense);
  part->copied = copied;
  return part;
}

void Part::refuse_old_copy(std::string_view where) const {
  TUTTI_CHECK(!copied->local.defined() || copied->local.version() == copied->version,
              "{}: the view {} is a copy, {}, and the tensor that it shows has been written since; take the view again "
              "after the write",
              where, spec->to_string(), reason_of(*copied));
}

void Part::check_writable(std::string_view where) const {
  TUTTI_CHECK(
      copied == nullptr,
      "{}: the view {} is a copy, {}: it is read-only memory and cannot be written; clone() it, or {} before the view "
      "is taken",
      where, spec->to_string(), reason_of(*copied),
      copied->has_moved ? "redistribute() the tensor that it shows" : "give from_local() the contiguous() part");
}

std::string Part::description() const {
  return fmt::format("{} on {}", to_string(spec->placements()), mesh->to_string());
}

std::string Part::text() const {
  return fmt::format("DTensor(local={}, {} on {})", tutti::to_string(local), spec->to_string(), mesh->to_string());
}

// A trace must not keep what it made of older tensors with them, nor take what was made of them before: its graph
// computes both.
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

Tensor Part::whole(const Tensor& t) const {
  return redistributed_part(t, spec->with(Placements(spec->placements().size())));
}

Tensor Part::beside(const Tensor& plain) const {
  if (is_dtensor(plain)) return {};
  const DTensorSpec& replicated = DTensorSpec::of({.mesh_id = spec->mesh_id(),
                                                   .mesh_shape = spec->mesh_shape(),
                                                   .placements = Placements(spec->placements().size()),
                                                   .sizes = plain.extents(),
                                                   .dtype = plain.dtype()});
  return wrap(plain, replicated, mesh);
}

std::shared_ptr<const WrapperForm> Part::form(const Tensor& t) const {
  return std::make_shared<PartForm>(spec_as_called(t), mesh, mesh->to_string(),
                                    t.is_contiguous() ? Extents() : t.strides(), copied != nullptr);
}

bool Part::has_whole(const Tensor& t, int dim) const {
  return t.is_contiguous() && mesh->has_coordinate() && spec->axes_of(dim).empty();
}

bool Part::has(const WrapperForm& form) const {
  const auto* of_part = dynamic_cast<const PartForm*>(&form);
  return of_part != nullptr && of_part->is_of(*this);
}

bool Part::is_copy_of(const WrapperExtension& other) const {
  const auto* of = dynamic_cast<const Part*>(&other);
  if (of == nullptr || copied == nullptr) return false;
  return copied == of->copied ||
         (copied->local.defined() && copied->local.storage().get() == of->local.storage().get());
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

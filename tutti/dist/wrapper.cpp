#include "tutti/dist/wrapper.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/dist/redistribute.h"

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

}  // namespace

const Part& part_of(const Tensor& t, const char* where) {
  const Part* part = t.extensions().find<Part>(kPart);
  TUTTI_CHECK(part != nullptr, "{}: the tensor {} is not distributed; make it so with distribute_tensor() or from_local()", where, describe(t));
  return *part;
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

Tensor Part::whole(const Tensor& t) const { return redistributed_part(t, spec->with(Placements(spec->placements().size()))); }

Tensor Part::beside(const Tensor& plain) const {
  if (is_dtensor(plain)) return {};
  const DTensorSpec& replicated = DTensorSpec::of({.mesh_id = spec->mesh_id(), .mesh_shape = spec->mesh_shape(), .placements = Placements(spec->placements().size()),
                                                   .sizes = plain.extents(), .dtype = plain.dtype()});
  return wrap(plain, replicated, mesh);
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

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

// Strides of the whole by which the same views are possible as of the part: dims follow each other as they do there, with a gap where
// they have one.
Extents strides_like(const Extents& sizes, const Tensor& local) {
  const Extents &strides = local.strides(), &part = local.extents();
  // The dims by falling strides, without heap memory.
  Dims order;
  for (size_t d = 0; d < sizes.size(); ++d) {
    size_t at = order.size();
    while (at > 0 && strides[static_cast<size_t>(order[at - 1])] < strides[d]) --at;
    order.insert(static_cast<int>(at), static_cast<int64_t>(d));
  }
  Extents result(sizes.size(), 0);
  int64_t next = 1, next_in_part = 1;  // the stride of a dim that follows without a gap
  for (size_t k = order.size(); k-- > 0;) {
    const auto d = static_cast<size_t>(order[k]);
    if (strides[d] == 0 && part[d] != 1) continue;
    const bool follows = part[d] <= 1 || strides[d] == next_in_part;
    result[d] = follows ? next : 2 * next;
    next = result[d] * std::max<int64_t>(sizes[d], 1);
    next_in_part = part[d] <= 1 ? next_in_part * part[d] : strides[d] * part[d];
  }
  return result;
}

}  // namespace

const Part& part_of(const Tensor& t, const char* where) {
  const Part* part = t.extensions().find<Part>(kPart);
  TUTTI_CHECK(part != nullptr, "{}: the tensor {} is not distributed; make it so with distribute_tensor() or from_local()", where, describe(t));
  return *part;
}

Tensor wrap(Tensor local, const DTensorSpec& spec, const Mesh& mesh) {
  const Extents strides = local.is_contiguous() ? contiguous_strides(spec.sizes()) : strides_like(spec.sizes(), local);
  int64_t reach = 1;
  for (size_t d = 0; d < strides.size(); ++d) reach += strides[d] * std::max<int64_t>(spec.sizes()[d] - 1, 0);
  StorageRef storage = StorageRef::adopt(Storage::without_memory(reach * itemsize(spec.dtype()), local.device(), std::make_unique<Elsewhere>(spec)));
  storage->share_version(*local.storage());
  Tensor t = Tensor::over(std::move(storage), spec.sizes(), strides, 0, spec.dtype());
  t.impl()->stages = static_cast<StageMask>(t.impl()->stages | stage());
  t.extensions().put(kPart, std::make_unique<Part>(spec, mesh, std::move(local)));
  return t;
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

#include "tutti/dist/spec.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::dist {
namespace {

uint64_t hash_of(const SpecFields& f) {
  std::string key;
  const auto add = [&](const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
  add(f.mesh_id);
  for (const int64_t n : f.mesh_shape) add(n);
  for (const Placement& p : f.placements) add(p.kind()), add(p.op()), add(p.dim()), add(p.pieces());
  for (const int axis : f.order) add(axis);
  for (const int64_t n : f.sizes) add(n);
  add(f.dtype), add(f.cut);
  return hash64(key);
}

// Without fields that make no difference, so that what is the same compares equal.
void normalize(SpecFields& f, std::string_view where) {
  TUTTI_CHECK(f.placements.size() == f.mesh_shape.size(),
              "{}: {} placements {} for the {} dims of the mesh; give one per dim", where, f.placements.size(),
              to_string(f.placements), f.mesh_shape.size());
  std::optional<PartialOp> pending;
  for (Placement& p : f.placements) {
    if (p.is_shard()) {
      const int ndim = f.sizes.ndim();
      TUTTI_CHECK(p.dim() >= -ndim && p.dim() < ndim, "{}: {} shards a dim that a tensor of {} does not have", where,
                  to_string(p), f.sizes);
      p = Placement::shard(p.dim() < 0 ? p.dim() + ndim : p.dim(), p.pieces());
    }
    if (!p.is_partial()) continue;
    const bool is_bitwise = p.op() == PartialOp::band || p.op() == PartialOp::bor || p.op() == PartialOp::bxor;
    TUTTI_CHECK(!is_bitwise || !is_floating(f.dtype),
                "{}: {} combines bits, and a tensor of {} has numbers; use sum, avg, max, min or prod", where,
                to_string(p), name_of(f.dtype));
    TUTTI_CHECK(p.op() != PartialOp::avg || is_floating(f.dtype),
                "{}: {} divides, and a tensor of {} has whole numbers; use sum, max, min or prod", where, to_string(p),
                name_of(f.dtype));
    TUTTI_CHECK((p.op() != PartialOp::sum && p.op() != PartialOp::prod) || f.dtype != DType::boolean,
                "{}: {} has no meaning for a tensor of booleans; use max, min or band, bor, bxor", where, to_string(p));
    const auto adds = [](PartialOp op) { return op == PartialOp::sum || op == PartialOp::avg; };
    TUTTI_CHECK(!pending || *pending == p.op() || (adds(*pending) && adds(p.op())),
                "{}: {} holds two kinds of partial values, which no order combines; reduce one first", where,
                to_string(f.placements));
    pending = p.op();
  }
  std::vector<int> ascending(f.mesh_shape.size());
  std::iota(ascending.begin(), ascending.end(), 0);
  if (f.order.empty()) f.order = ascending;
  std::vector<int> sorted = f.order;
  std::sort(sorted.begin(), sorted.end());
  TUTTI_CHECK(sorted == ascending, "{}: [{}] is no order of the {} dims of the mesh", where, fmt::join(f.order, ", "),
              f.mesh_shape.size());
  // Axes are brought into ascending order unless they shard one dim of the tensor.
  for (size_t pass = 0; pass < f.order.size(); ++pass) {
    for (size_t k = 0; k + 1 < f.order.size(); ++k) {
      const Placement &a = f.placements[static_cast<size_t>(f.order[k])],
                      &b = f.placements[static_cast<size_t>(f.order[k + 1])];
      const bool tied = a.is_shard() && b.is_shard() && a.dim() == b.dim();
      if (!tied && f.order[k] > f.order[k + 1]) std::swap(f.order[k], f.order[k + 1]);
    }
  }
  if (std::none_of(f.placements.begin(), f.placements.end(), [](const Placement& p) { return p.is_shard(); }))
    f.cut = Cut::halving;
}

std::vector<int> axes_sharding(const SpecFields& f, int dim) {
  std::vector<int> axes;
  for (const int axis : f.order) {
    const Placement& p = f.placements[static_cast<size_t>(axis)];
    if (p.is_shard() && p.dim() == dim) axes.push_back(axis);
  }
  return axes;
}

// On every rank, what outer axes leave of a dim divides into the pieces of the inner ones: were that found out rank by
// rank, some would go on and wait for the others.
void check_pieces(const SpecFields& f) {
  for (int dim = 0; dim < f.sizes.ndim(); ++dim) {
    const std::vector<int> axes = axes_sharding(f, dim);
    if (std::none_of(axes.begin(), axes.end(),
                     [&](int axis) { return f.placements[static_cast<size_t>(axis)].pieces() != 1; }))
      continue;
    std::vector<IndexSet> held{IndexSet(f.sizes[static_cast<size_t>(dim)])};
    for (const int axis : axes) {
      const auto at = static_cast<size_t>(axis);
      std::vector<IndexSet> next;
      for (const IndexSet& set : held) {
        for (int64_t r = 0; r < f.mesh_shape[at]; ++r)
          next.push_back(set.cut(r, f.mesh_shape[at], f.placements[at].pieces(), f.cut));
      }
      held = std::move(next);
    }
  }
}

}  // namespace

// The table of all specs.
struct SpecTable {
  std::mutex mutex;
  std::deque<DTensorSpec> specs;
  std::unordered_multimap<uint64_t, DTensorSpec*> by_hash;

  static SpecTable& instance() {
    static SpecTable table;
    return table;
  }

  const DTensorSpec& intern(SpecFields fields) {
    const uint64_t hash = hash_of(fields);
    const std::lock_guard lock(mutex);
    const auto [begin, end] = by_hash.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (it->second->fields_ == fields) return *it->second;
    }
    check_pieces(fields);
    DTensorSpec& spec = specs.emplace_back();
    spec.fields_ = std::move(fields);
    const bool adds =
        std::any_of(spec.fields_.placements.begin(), spec.fields_.placements.end(), [](const Placement& p) {
          return p.is_partial() && (p.op() == PartialOp::sum || p.op() == PartialOp::avg || p.op() == PartialOp::prod);
        });
    spec.local_dtype_ =
        adds && is_floating(spec.fields_.dtype) ? compute_dtype(spec.fields_.dtype) : spec.fields_.dtype;
    spec.id_ = static_cast<uint32_t>(specs.size());
    by_hash.emplace(hash, &spec);
    return spec;
  }
};

const DTensorSpec& DTensorSpec::of(SpecFields fields, std::string_view where) {
  normalize(fields, where);
  return SpecTable::instance().intern(std::move(fields));
}

const DTensorSpec& DTensorSpec::of_id(uint32_t id) {
  SpecTable& table = SpecTable::instance();
  const std::lock_guard lock(table.mutex);
  TUTTI_ASSERT(id >= 1 && id <= table.specs.size(), "there is no spec {}", id);
  return table.specs[id - 1];
}

bool DTensorSpec::is_replicated() const {
  return std::all_of(fields_.placements.begin(), fields_.placements.end(),
                     [](const Placement& p) { return p.is_replicate(); });
}
bool DTensorSpec::has_partial() const {
  return std::any_of(fields_.placements.begin(), fields_.placements.end(),
                     [](const Placement& p) { return p.is_partial(); });
}
bool DTensorSpec::has_shard() const {
  return std::any_of(fields_.placements.begin(), fields_.placements.end(),
                     [](const Placement& p) { return p.is_shard(); });
}

std::vector<int> DTensorSpec::axes_of(int dim) const { return axes_sharding(fields_, dim); }

IndexSet DTensorSpec::indices(int dim, std::span<const int64_t> coordinate) const {
  IndexSet set(fields_.sizes[static_cast<size_t>(dim)]);
  for (const int axis : axes_of(dim)) {
    const auto at = static_cast<size_t>(axis);
    set = set.cut(coordinate[at], fields_.mesh_shape[at], fields_.placements[at].pieces(), fields_.cut);
  }
  return set;
}

Extents DTensorSpec::local_sizes(std::span<const int64_t> coordinate) const {
  Extents sizes = fields_.sizes;
  for (int d = 0; d < sizes.ndim(); ++d) sizes[static_cast<size_t>(d)] = indices(d, coordinate).size();
  return sizes;
}

bool DTensorSpec::has_parts_of(const DTensorSpec& other) const {
  if (this == &other) return true;
  const SpecFields &a = fields_, &b = other.fields_;
  if (a.mesh_id != b.mesh_id || !(a.sizes == b.sizes) || a.dtype != b.dtype || local_dtype_ != other.local_dtype_)
    return false;
  for (size_t axis = 0; axis < a.mesh_shape.size(); ++axis) {
    const Placement &p = a.placements[axis], &q = b.placements[axis];
    if (a.mesh_shape[axis] > 1 && (p.is_partial() || q.is_partial()) && !(p == q)) return false;
  }
  int64_t ranks = 1;
  for (const int64_t n : a.mesh_shape) ranks *= n;
  std::vector<int64_t> at(a.mesh_shape.size(), 0);
  for (int64_t r = 0; r < ranks; ++r) {
    int64_t rest = r;
    for (size_t axis = at.size(); axis-- > 0; rest /= a.mesh_shape[axis]) at[axis] = rest % a.mesh_shape[axis];
    for (int d = 0; d < a.sizes.ndim(); ++d) {
      if (!(indices(d, at) == other.indices(d, at))) return false;
    }
  }
  return true;
}

const DTensorSpec& DTensorSpec::with(Placements placements) const {
  SpecFields fields = fields_;
  fields.placements = std::move(placements);
  return of(std::move(fields));
}

std::string DTensorSpec::to_string() const {
  const SpecFields& f = fields_;
  std::string order;
  if (!std::is_sorted(f.order.begin(), f.order.end())) order = fmt::format(" order {}", fmt::join(f.order, " "));
  return fmt::format("{}{}@{}{}{}", name_of(f.dtype), f.sizes, dist::to_string(f.placements), order,
                     f.cut == Cut::chunk ? " chunk" : "");
}

std::string to_string(const Placements& placements) {
  std::string text;
  for (const Placement& p : placements) text += fmt::format("{}{}", text.empty() ? "" : ", ", tutti::to_string(p));
  return "[" + text + "]";
}

Placement placement_from_text(std::string_view text) {
  const auto refuse = [&] { throw UsageError(fmt::format("placement '{}': expected R, S(dim), P or P(op)", text)); };
  if (text == "R") return Placement::replicate();
  if (text == "P") return Placement::partial();
  if (text.size() < 4 || text[1] != '(' || text.back() != ')') refuse();
  const std::string inner(text.substr(2, text.size() - 3));
  if (text[0] == 'P') return Placement::partial(partial_op_from_name(inner));
  char* end = nullptr;
  const long dim = std::strtol(inner.c_str(), &end, 10);
  if (text[0] != 'S' || end != inner.c_str() + inner.size() || inner.empty() || dim < -kMaxDims || dim >= kMaxDims)
    refuse();
  return Placement::shard(static_cast<int>(dim));
}

}  // namespace tutti::dist

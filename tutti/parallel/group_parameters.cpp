#include "tutti/parallel/group_parameters.h"

#include <algorithm>
#include <numeric>

#include "tutti/ops/copy.h"

namespace tutti::parallel {
namespace {

// Whether the master may be rows of the copy, which ranks share.
bool fits_in_copy(const StoredParameter& p) {
  return p.named.parameter.dtype() == p.named.parameter.use_dtype() && p.spec->placements().back().dim() == 0;
}

int64_t version_of(const Tensor& t) { return static_cast<int64_t>(t.storage()->version()); }

}  // namespace

GroupParameters::GroupParameters(const std::vector<StoredParameter>& parameters, const dist::Mesh& mesh)
    : mesh_(mesh), group_(mesh->group(mesh->ndim() - 1).get()) {
  std::vector<ParameterCopies::Sizes> sizes;
  for (const StoredParameter& p : parameters)
    sizes.push_back({p.spec->sizes(), p.named.parameter.use_dtype(), fits_in_copy(p) ? p.memory : Tensor()});
  copies_ = std::make_unique<ParameterCopies>(*group_, sizes);
  const MemoryCategoryScope category(MemoryCategory::parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const StoredParameter& p = parameters[i];
    names_.push_back(p.named.name);
    specs_.push_back(p.spec);
    storage_.push_back(p.storage);
    is_in_copy_.push_back(copies_->is_shared() && fits_in_copy(p));
    const Tensor whole = is_in_copy_[i] ? copies_->writable(i) : p.memory;
    stored_.push_back(whole.defined()
                          ? dist::part_in_whole(whole, *p.storage, mesh->coordinate())
                          : Tensor::empty(p.storage->local_sizes(mesh->coordinate()), p.named.parameter.dtype()));
    written_.push_back(kNever);
    const Tensor& copy = copies_->leaves()[i];
    leaves_.push_back(p.read == nullptr ? copy : dist::wrap(copy, *p.read, p.readers));
    is_in_pieces_ = p.storage != p.spec;
  }
}

std::vector<size_t> GroupParameters::all() const {
  std::vector<size_t> all(size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

int64_t GroupParameters::stored_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& part : stored_) bytes += part.nbytes();
  return bytes;
}

std::vector<int64_t> GroupParameters::versions() const {
  std::vector<int64_t> versions;
  for (const Tensor& part : stored_) versions.push_back(version_of(part));
  return versions;
}

bool GroupParameters::is_stale(size_t i) const { return written_[i] != version_of(stored_[i]); }

std::vector<size_t> GroupParameters::stale() const {
  std::vector<size_t> stale;
  for (size_t i = 0; i < size(); ++i) {
    if (is_stale(i)) stale.push_back(i);
  }
  return stale;
}

void GroupParameters::note_written(size_t i) {
  written_[i] = version_of(stored_[i]);
  leaves_[i].storage()->bump_version();
}

bool GroupParameters::were_written() const { return std::ranges::count(written_, kNever) == 0; }

Tensor GroupParameters::rows(const Tensor& whole, size_t i, int64_t shard) const {
  std::vector<int64_t> coordinate = mesh_->coordinate();
  coordinate.back() = shard;
  return dist::part_in_whole(whole, *specs_[i], coordinate);
}

Tensor GroupParameters::part(const Tensor& whole, size_t i, int64_t shard, int64_t shards, int64_t piece) const {
  if (shards == group_size()) {
    if (!is_in_pieces_) return rows(whole, i, shard);
    const int64_t coordinate[] = {piece, shard};
    return dist::part_in_whole(whole, *storage_[i], coordinate);
  }
  const auto dim = static_cast<size_t>(specs_[i]->placements().back().dim());
  Extents sizes = whole.extents();
  const dist::Range range = dist::cut_range(sizes[dim], shard, shards, dist::Cut::chunk);
  sizes[dim] = range.size();
  return whole.view_as(sizes, whole.strides(), whole.offset() + range.begin * whole.strides()[dim]);
}

int64_t GroupParameters::part_bytes(size_t i, int64_t shard, int64_t shards, int64_t piece) const {
  constexpr int64_t kWord = 8;
  const Tensor& copy = copies_->leaves()[i];
  return (part(copy, i, shard, shards, piece).numel() * itemsize(copy.dtype()) + kWord - 1) / kWord * kWord;
}

int64_t GroupParameters::bytes_of(int64_t shard, int64_t shards) const {
  int64_t bytes = 0;
  for (int64_t piece = 0; piece < pieces(shards); ++piece) {
    for (size_t i = 0; i < size(); ++i) bytes += part_bytes(i, shard, shards, piece);
  }
  return bytes;
}

Tensor GroupParameters::stored_in_dtype_of_use(const std::vector<size_t>& parameters) const {
  int64_t bytes = 0, at = 0;
  for (const size_t i : parameters) bytes += part_bytes(i, own_shard(), group_size(), own_piece());
  const Tensor all = Tensor::empty({bytes}, DType::u8);
  for (const size_t i : parameters) {
    if (stored_[i].numel() > 0)
      copy_(elements_at(all, at, stored_[i].extents(), copies_->leaves()[i].dtype()), stored_[i]);
    at += part_bytes(i, own_shard(), group_size(), own_piece());
  }
  return all;
}

int64_t GroupParameters::write_part(const Tensor& bytes, int64_t at, const std::vector<size_t>& parameters,
                                    int64_t shard, int64_t shards, int64_t piece) {
  const int64_t begin = at;
  for (const size_t i : parameters) {
    const Tensor to = part(copies_->writable(i), i, shard, shards, piece);
    if (to.numel() > 0) copy_(to, elements_at(bytes, at, to.extents(), to.dtype()));
    at += part_bytes(i, shard, shards, piece);
  }
  return at - begin;
}

Tensor elements_at(const Tensor& bytes, int64_t at, const Extents& sizes, DType dtype) {
  return Tensor::from_memory(static_cast<std::byte*>(bytes.raw_data()) + at, sizes, dtype, [bytes] {});
}

}  // namespace tutti::parallel

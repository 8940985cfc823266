// What ranks that do not share memory bring each other: the parts of a group, pieces of parts that replicas store, and
// what is kept of copies between forward and backward.
#include <numeric>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"
#include "tutti/parallel/shard_group.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::parallel {
namespace {

// The elements of a parameter among the bytes of a rank.
Tensor piece_of(const Tensor& bytes, int64_t at, const Extents& sizes, DType dtype) {
  return Tensor::from_memory(static_cast<std::byte*>(bytes.raw_data()) + at, sizes, dtype, [bytes] {});
}

}  // namespace

void ShardGroup::reshard_after_forward() {
  if (near_ == nullptr) return reshard();
  all->note(this, ShardGroups::Copies::kept);
  if (!is_whole_ || all->holds > 0) return;
  const NoGradScope no_grad;
  const MemoryCategoryScope category(MemoryCategory::parameters);
  int64_t bytes = 0, at = 0;
  for (size_t i = 0; i < parts_.size(); ++i) bytes += nbytes(i, near_->rank(), keepers_, 0);
  kept_ = {.bytes = Tensor::empty({bytes}, DType::u8), .versions = versions()};
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Tensor mine = part(copies_->leaves()[i], i, near_->rank(), keepers_, 0);
    if (mine.numel() > 0) copy_(piece_of(kept_->bytes, at, mine.extents(), mine.dtype()), mine);
    at += nbytes(i, near_->rank(), keepers_, 0);
  }
  copies_->release();
  is_whole_ = false;
}

std::vector<int64_t> ShardGroup::versions() const {
  std::vector<int64_t> versions;
  for (const Tensor& part : parts_) versions.push_back(static_cast<int64_t>(part.storage()->version()));
  return versions;
}

// What a shard brings of a parameter, or of a piece of it, in the dtype of use. Whole words, so that the next parameter
// is aligned in any dtype.
int64_t ShardGroup::nbytes(size_t i, int64_t shard, int64_t shards, int64_t piece) const {
  constexpr int64_t kWord = 8;
  const Tensor& leaf = copies_->leaves()[i];
  return (part(leaf, i, shard, shards, piece).numel() * itemsize(leaf.dtype()) + kWord - 1) / kWord * kWord;
}

// In how many pieces one of `shards` ranks has its part.
int64_t ShardGroup::pieces(int64_t shards) const {
  return replicas_ != nullptr && shards == group_->size() ? replicas_->size() : 1;
}

// The sum over all parameters and pieces.
int64_t ShardGroup::bytes_of(int64_t shard, int64_t shards) const {
  int64_t bytes = 0;
  for (int64_t piece = 0; piece < pieces(shards); ++piece) {
    for (size_t i = 0; i < parts_.size(); ++i) bytes += nbytes(i, shard, shards, piece);
  }
  return bytes;
}

// What one of `shards` ranks brings of a parameter: what it stores, or the piece of it that a replica stores, or what
// it has kept among fewer.
Tensor ShardGroup::part(const Tensor& whole, size_t i, int64_t shard, int64_t shards, int64_t piece) const {
  if (shards == group_->size()) {
    if (replicas_ == nullptr) return rows(whole, i, shard);
    const int64_t coordinate[] = {piece, shard};
    return dist::part_in_whole(whole, *storage_[i], coordinate);
  }
  const auto dim = static_cast<size_t>(specs_[i]->placements().back().dim());
  Extents sizes = whole.extents();
  const dist::Range range = dist::cut_range(sizes[dim], shard, shards, dist::Cut::chunk);
  sizes[dim] = range.size();
  return whole.view_as(sizes, whole.strides(), whole.offset() + range.begin * whole.strides()[dim]);
}

// What this rank stores of some parameters, in the dtype of use.
Tensor ShardGroup::stored_bytes_of(const std::vector<size_t>& parameters) const {
  const int64_t own = replicas_ == nullptr ? 0 : replicas_->rank();
  int64_t bytes = 0, at = 0;
  for (const size_t i : parameters) bytes += nbytes(i, group_->rank(), group_->size(), own);
  const Tensor all = Tensor::empty({bytes}, DType::u8);
  for (const size_t i : parameters) {
    if (parts_[i].numel() > 0) copy_(piece_of(all, at, parts_[i].extents(), copies_->leaves()[i].dtype()), parts_[i]);
    at += nbytes(i, group_->rank(), group_->size(), own);
  }
  return all;
}

// The pieces that replicas store of this rank's part of some parameters, one after another in `into`; undefined: in
// memory of their own.
ShardGroup::Gather ShardGroup::start_exchange(const std::vector<size_t>& parameters, const Tensor& into) const {
  const MemoryCategoryScope category(MemoryCategory::parameters);
  Gather gather{.work = {}, .outputs = {}, .input = stored_bytes_of(parameters), .versions = versions()};
  int64_t at = 0;
  for (int64_t r = 0; r < replicas_->size(); ++r) {
    int64_t bytes = 0;
    for (const size_t i : parameters) bytes += nbytes(i, group_->rank(), group_->size(), r);
    gather.outputs.push_back(into.defined() ? into.view_as({bytes}, {1}, at) : Tensor::empty({bytes}, DType::u8));
    at += bytes;
  }
  gather.work = replicas_->all_gather_v(gather.outputs, gather.input, {.async = true});
  return gather;
}

void ShardGroup::start_joining() {
  if (replicas_ == nullptr || is_shared() || (joined_ && joined_->versions == versions()) ||
      (joining_ && joining_->versions == versions()))
    return;
  const NoGradScope no_grad;
  if (joining_) joining_->work.wait();
  drop_gather();  // which may send what it brings
  const MemoryCategoryScope category(MemoryCategory::parameters);
  if (!joined_)
    joined_ = {.bytes = Tensor::empty({bytes_of(group_->rank(), group_->size())}, DType::u8), .versions = {}};
  joining_ = start_exchange(every_parameter(), joined_->bytes);
}

// All groups begin together: their parts are memory that they have anyway, and forward waits for one at a time.
void ShardGroup::join() {
  if (joined_ && joined_->versions == versions()) return;
  all->start_joining();
  joining_->work.wait();
  joined_->versions = joining_->versions;
  joining_.reset();
}

// One collective: every rank brings its parts, one after another. They may have several dtypes, so bytes travel. Where
// ranks have kept the copies, they come from those.
void ShardGroup::start_gather() {
  if (is_shared() || group_->size() == 1 || under_way_ || (is_whole_ && stale().empty())) return;
  const NoGradScope no_grad;
  const TraceSpan span(TraceCategory::annotation, start_label_);
  const MemoryCategoryScope category(MemoryCategory::parameters);
  const bool is_near = has_kept();
  comm::ProcessGroup& from = is_near ? *near_ : *gathers_;
  if (!is_near && replicas_ != nullptr) join();
  Gather& gather = under_way_.emplace();
  for (int r = 0; r < from.size(); ++r) gather.outputs.push_back(Tensor::empty({bytes_of(r, from.size())}, DType::u8));
  gather.input = is_near ? kept_->bytes : replicas_ != nullptr ? joined_->bytes : stored_bytes_of(every_parameter());
  kept_.reset();
  gather.versions = versions();
  gather.work = from.all_gather_v(gather.outputs, gather.input, {.async = true});
}

void ShardGroup::gather() {
  wait_for_gather();
  // Forward starts those of its list when the module begins, which may be later.
  using Reader = ShardGroups::Reader;
  const Reader reader = all->reader();
  if (reader == Reader::backward && !backward_prefetch.empty()) all->start(backward_prefetch);
  else if (reader != Reader::forward || forward_prefetch.empty()) all->prefetch();
}

void ShardGroup::wait_for_gather() {
  const NoGradScope no_grad;
  const TraceSpan span(TraceCategory::annotation, "FSDP::all_gather");
  const std::vector<size_t> changed = stale();
  if (group_->size() == 1) {
    if (replicas_ != nullptr) join();
    take({replicas_ != nullptr ? joined_->bytes : stored_bytes_of(every_parameter())});
  } else {
    if (under_way_ && under_way_->versions != versions()) drop_gather();  // begun before the masters were stepped
    start_gather();
    Gather gather = std::move(*under_way_);
    under_way_.reset();
    gather.work.wait();
    take(gather.outputs);
  }
  for (const size_t i : changed) {
    written_[i] = static_cast<int64_t>(parts_[i].storage()->version());
    leaves_[i].storage()->bump_version();
  }
}

void ShardGroup::drop_gather() {
  if (!under_way_) return;
  under_way_->work.wait();
  under_way_.reset();
}

void ShardGroup::take(const std::vector<Tensor>& parts_of_ranks) {
  copies_->restore();
  const int64_t ranks = std::ssize(parts_of_ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    int64_t at = 0;
    for (int64_t piece = 0; piece < pieces(ranks); ++piece) {
      for (size_t i = 0; i < parts_.size(); ++i) {
        const Tensor to = part(copies_->writable(i), i, r, ranks, piece);
        if (to.numel() > 0) copy_(to, piece_of(parts_of_ranks[static_cast<size_t>(r)], at, to.extents(), to.dtype()));
        at += nbytes(i, r, ranks, piece);
      }
    }
  }
}

// What a replica stores of this rank's part of some parameters.
void ShardGroup::take_piece(const Tensor& bytes, const std::vector<size_t>& parameters, int64_t piece) {
  int64_t at = 0;
  for (const size_t i : parameters) {
    const Tensor to = part(copies_->writable(i), i, group_->rank(), group_->size(), piece);
    if (to.numel() > 0) copy_(to, piece_of(bytes, at, to.extents(), to.dtype()));
    at += nbytes(i, group_->rank(), group_->size(), piece);
  }
}

}  // namespace tutti::parallel

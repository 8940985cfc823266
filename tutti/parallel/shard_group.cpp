#include "tutti/parallel/shard_group.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/graph/trace.h"
#include "tutti/ops/copy.h"
#include "tutti/parallel/publish_protocol.h"
#include "tutti/parallel/storage_placement.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::parallel {

namespace {

// Gathers have a group of their own: they are called while gradients are on their way, and when those start differs from rank to rank.
struct GatherGroups {
  std::map<std::string, std::weak_ptr<comm::ProcessGroup>> of;  // by the key of the group of the same ranks
};

// The `count` neighbours of this rank in it, or all ranks.
std::shared_ptr<comm::ProcessGroup> gather_group(comm::ProcessGroup& group, int64_t count) {
  std::weak_ptr<comm::ProcessGroup>& known = RankContext::current().slot<GatherGroups>().of[fmt::format("{}/{}", group.key(), count)];
  if (auto living = known.lock()) return living;
  std::vector<int> ranks(static_cast<size_t>(count));
  const int first = group.rank() / static_cast<int>(count) * static_cast<int>(count);
  std::iota(ranks.begin(), ranks.end(), first);
  auto made = group.split(ranks, {.name = count == group.size() ? group.name() + "/gathers" : fmt::format("{}/gathers of {} from {}", group.name(), count, first)});
  known = made;
  return made;
}

// The elements of a parameter among the bytes of a rank.
Tensor piece_of(const Tensor& bytes, int64_t at, const Extents& sizes, DType dtype) {
  return Tensor::from_memory(static_cast<std::byte*>(bytes.raw_data()) + at, sizes, dtype, [bytes] {});
}

}  // namespace

PublishProtocol& publish_protocol() {
  static PublishProtocol protocol;
  return protocol;
}

// ---- all groups of a model

void ShardGroups::add(const std::shared_ptr<ShardGroup>& group) { groups_.push_back(group); }

void ShardGroups::take_all(ShardGroups& inner) {
  for (const auto& group : inner.groups()) groups_.push_back(group);
  may_be_read_ = may_be_read_ || inner.may_be_read_;
  inner.groups_.clear();
}

std::vector<std::shared_ptr<ShardGroup>> ShardGroups::groups() const {
  std::vector<std::shared_ptr<ShardGroup>> living;
  for (const auto& weak : groups_) {
    if (auto group = weak.lock()) living.push_back(std::move(group));
  }
  return living;
}

void ShardGroups::publish() {
  Changed changed;
  uint64_t agreement = 0;
  for (const auto& group : groups()) {
    if (!group->is_shared()) continue;
    std::vector<size_t> stale = group->stale();
    agreement = hash64(stale.data(), stale.size() * sizeof(size_t), agreement + 1);
    if (!stale.empty()) changed.emplace_back(group, std::move(stale));
  }
  if (changed.empty()) return;
  const TraceSpan span(TraceCategory::annotation, "FSDP::publish");
  settle();
  if (publish_protocol().poisons) poison(changed);
  for (const auto& [group, stale] : changed) group->write(stale);
  if (publish_protocol().waits_for_writers) widest().barrier({.agreement = agreement});
  may_be_read_ = true;
}

void ShardGroups::poison(const Changed& changed) const {
  std::vector<std::function<void()>> restores;
  for (const auto& [group, stale] : changed) restores.push_back(group->poison(stale));
  const PublishProtocol& protocol = publish_protocol();
  if (widest().rank() == protocol.slow_rank && protocol.while_poisoned) protocol.while_poisoned();
  for (const auto& restore : restores) restore();
}

// The groups of a model are nested: one of any two has all ranks of the other.
comm::ProcessGroup& ShardGroups::widest() const {
  const auto all = groups();
  return (*std::ranges::max_element(all, {}, [](const auto& group) { return group->ranks().size(); }))->ranks();
}

// Ranks that are behind still read until they come here.
void ShardGroups::settle() {
  if (!std::exchange(may_be_read_, false) || !publish_protocol().waits_for_readers) return;
  const TraceSpan span(TraceCategory::annotation, "FSDP::settle");
  widest().barrier();
}

void ShardGroups::note(const ShardGroup* group, Copies copies) {
  const Event event{group, copies, is_backward()};
  if (round_.empty() || round_.back() != event) round_.push_back(event);
}

void ShardGroups::prefetch() {
  if (round_.empty()) return;
  const size_t here = round_.size() - 1;
  if (here >= round_before_.size() || round_before_[here] != round_[here]) return;
  int ahead = prefetched;
  for (size_t i = here + 1; i < round_before_.size() && ahead > 0; ++i) {
    if (round_before_[i].copies != Copies::whole || round_before_[i].group == round_[here].group) continue;
    for (const auto& group : groups()) {
      if (group.get() == round_before_[i].group) group->start_gather();
    }
    --ahead;
  }
}

// In the order of the list, whatever is whole or on its way already: ranks without a shard do the same later.
void ShardGroups::start(const List& list) {
  for (const auto& weak : list) {
    const auto group = weak.lock();
    if (group == nullptr || group->is_shared()) continue;
    note(group.get(), Copies::ahead);
    group->start_gather();
  }
}

// What was gathered ahead and read by nobody goes.
void ShardGroups::begin_round() {
  round_before_ = std::exchange(round_, {});
  for (const auto& group : groups()) group->drop_gather();
}

void ShardGroups::replay_round() {
  struct Replay {
    bool& is_backward;
    ~Replay() { is_backward = false; }
  } const replay{replays_backward_};
  for (const Event& event : round_before_) {
    replay.is_backward = event.is_backward;
    for (const auto& group : groups()) {
      if (group.get() != event.group) continue;
      switch (event.copies) {
        case Copies::whole: group->unshard(); break;
        case Copies::kept: group->reshard_after_forward(); break;
        case Copies::given_back: group->reshard(); break;
        case Copies::ahead: start({group}); break;
      }
    }
  }
}

bool ShardGroups::is_backward() const { return replays_backward_ || autograd::is_backward_running(); }

// ---- one group

ShardGroup::ShardGroup(std::string name, const dist::Mesh& mesh, int64_t keepers)
    : name_(std::move(name)), start_label_(intern_trace_name(fmt::format("FSDP::all_gather_copy_in ({})", name_))), mesh_(mesh), keepers_(keepers) {}

std::shared_ptr<ShardGroup> ShardGroup::make(std::string name, const std::vector<Stored>& parameters, const dist::Mesh& mesh, int64_t keepers) {
  const NoGradScope no_grad;
  const std::shared_ptr<ShardGroup> made(new ShardGroup(std::move(name), mesh, keepers));
  made->group_ = mesh->group(mesh->ndim() - 1).get();
  std::vector<ParameterCopies::Sizes> sizes;
  const auto lies_in_copy = [](const Stored& p) { return p.named.parameter.dtype() == p.named.parameter.use_dtype() && p.spec->placements().back().dim() == 0; };
  for (const Stored& p : parameters) sizes.push_back({p.spec->sizes(), p.named.parameter.use_dtype(), lies_in_copy(p) ? p.memory : Tensor()});
  made->copies_ = std::make_unique<ParameterCopies>(*made->group_, sizes);
  if (!made->is_shared() && made->group_->size() > 1) made->gathers_ = gather_group(*made->group_, made->group_->size());
  if (made->gathers_ != nullptr && keepers > 1 && keepers < made->group_->size()) made->near_ = gather_group(*made->group_, keepers);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const nn::Parameter& p = parameters[i].named.parameter;
    const dist::DTensorSpec& spec = *parameters[i].spec;
    const Tensor before = p.is_materialized() ? p.master() : Tensor();
    made->names_.push_back(parameters[i].named.name);
    made->specs_.push_back(&spec);
    made->is_in_copy_.push_back(made->is_shared() && lies_in_copy(parameters[i]));
    const MemoryCategoryScope category(MemoryCategory::parameters);
    const Tensor whole = made->is_in_copy_[i] ? made->copies_->writable(i) : parameters[i].memory;
    Tensor part = whole.defined() ? made->rows(whole, i, made->group_->rank()) : Tensor::empty(spec.local_sizes(mesh->coordinate()), p.dtype());
    made->parts_.push_back(part);
    made->written_.push_back(-1);
    const Tensor& copy = made->copies_->leaves()[i];
    const Tensor leaf = parameters[i].read == nullptr ? copy : dist::wrap(copy, *parameters[i].read, parameters[i].readers);
    made->leaves_.push_back(leaf);
    const Tensor master = dist::wrap(part, *parameters[i].master, parameters[i].mesh);
    set_storage_placement(leaf, std::make_unique<StoragePlacement>(spec, mesh, master, made, [weak = std::weak_ptr(made)](const Tensor& finished) {
      if (const auto group = weak.lock()) group->finished(finished);
    }));
    p.set_stored_apart(master, leaf, [made, i] { made->read(i); }, [made] { made->will_change(); });
    if (!before.defined()) continue;
    if (parameters[i].read == nullptr) {
      p.assign(before);
    } else {
      p.will_change();
      copy_(part, made->rows(dist::part_of(before, "fully_shard").local, i, made->group_->rank()));
    }
  }
  made->reshard();  // nothing has been written
  return made;
}

comm::ProcessGroup& ShardGroup::ranks() const { return *group_; }

int64_t ShardGroup::stored_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& part : parts_) bytes += part.nbytes();
  return bytes;
}

void ShardGroup::will_change() {
  if (all != nullptr && is_shared()) all->settle();
}

bool ShardGroup::is_stale(size_t i) const { return written_[i] != static_cast<int64_t>(parts_[i].storage()->version()); }

std::vector<size_t> ShardGroup::stale() const {
  std::vector<size_t> stale;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (is_stale(i)) stale.push_back(i);
  }
  return stale;
}

void ShardGroup::read(size_t i) {
  if (is_whole_ && !is_stale(i)) {
    all->note(this, ShardGroups::Copies::whole);
    return;
  }
  unshard();
}

void ShardGroup::unshard() {
  all->note(this, ShardGroups::Copies::whole);
  const bool is_fresh = stale().empty();
  if (is_whole_ && is_fresh) return;
  if (!is_shared()) gather();
  else if (!is_fresh) all->publish();
  is_whole_ = true;
}

void ShardGroup::reshard() {
  if (all != nullptr) all->note(this, ShardGroups::Copies::given_back);
  if (is_shared() || (all != nullptr && all->holds > 0)) return;
  copies_->release();
  kept_.reset();
  is_whole_ = false;
}

void ShardGroup::reshard_after_forward() {
  if (near_ == nullptr) return reshard();
  all->note(this, ShardGroups::Copies::kept);
  if (!is_whole_ || all->holds > 0) return;
  const NoGradScope no_grad;
  const MemoryCategoryScope category(MemoryCategory::parameters);
  int64_t bytes = 0, at = 0;
  for (size_t i = 0; i < parts_.size(); ++i) bytes += nbytes(i, near_->rank(), keepers_);
  kept_ = {.bytes = Tensor::empty({bytes}, DType::u8), .versions = versions()};
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Tensor mine = part(copies_->leaves()[i], i, near_->rank(), keepers_);
    if (mine.numel() > 0) copy_(piece_of(kept_->bytes, at, mine.extents(), mine.dtype()), mine);
    at += nbytes(i, near_->rank(), keepers_);
  }
  copies_->release();
  is_whole_ = false;
}

void ShardGroup::set_reshard_after_forward(bool on) {
  keepers_ = on ? group_->size() : 1;
  near_.reset();
  kept_.reset();
}

bool ShardGroup::has_kept() const { return kept_ && kept_->versions == versions(); }

// The rows of `whole` that a shard stores.
Tensor ShardGroup::rows(const Tensor& whole, size_t i, int64_t shard) const {
  std::vector<int64_t> coordinate = mesh_->coordinate();
  coordinate.back() = shard;
  return dist::part_in_whole(whole, *specs_[i], coordinate);
}

void ShardGroup::write(const std::vector<size_t>& parameters) {
  const NoGradScope no_grad;
  for (const size_t i : parameters) {
    if (!is_in_copy_[i]) copy_(rows(copies_->writable(i), i, group_->rank()), parts_[i]);
    written_[i] = static_cast<int64_t>(parts_[i].storage()->version());
    leaves_[i].storage()->bump_version();
  }
}

std::function<void()> ShardGroup::poison(const std::vector<size_t>& parameters) const {
  struct Rows {
    Tensor tensor;
    std::vector<std::byte> values;
  };
  std::vector<Rows> poisoned;
  for (const size_t i : parameters) {
    const Tensor mine = rows(copies_->writable(i), i, group_->rank());
    if (mine.numel() == 0 || !mine.is_contiguous()) continue;
    auto* const at = static_cast<std::byte*>(mine.raw_data());
    poisoned.push_back({mine, {at, at + mine.nbytes()}});
    std::memset(at, 0xff, static_cast<size_t>(mine.nbytes()));
  }
  return [poisoned = std::move(poisoned)] {
    for (const Rows& r : poisoned) std::memcpy(r.tensor.raw_data(), r.values.data(), r.values.size());
  };
}

std::vector<int64_t> ShardGroup::versions() const {
  std::vector<int64_t> versions;
  for (const Tensor& part : parts_) versions.push_back(static_cast<int64_t>(part.storage()->version()));
  return versions;
}

// What a shard brings of a parameter, in the dtype of use. Whole words, so that the next parameter is aligned in any dtype.
int64_t ShardGroup::nbytes(size_t i, int64_t shard, int64_t shards) const {
  constexpr int64_t kWord = 8;
  const Tensor& leaf = copies_->leaves()[i];
  return (part(leaf, i, shard, shards).numel() * itemsize(leaf.dtype()) + kWord - 1) / kWord * kWord;
}

// What one of `shards` ranks brings of a parameter: what it stores, or what it has kept among fewer.
Tensor ShardGroup::part(const Tensor& whole, size_t i, int64_t shard, int64_t shards) const {
  if (shards == group_->size()) return rows(whole, i, shard);
  const auto dim = static_cast<size_t>(specs_[i]->placements().back().dim());
  Extents sizes = whole.extents();
  const dist::Range range = dist::cut_range(sizes[dim], shard, shards, dist::Cut::chunk);
  sizes[dim] = range.size();
  return whole.view_as(sizes, whole.strides(), whole.offset() + range.begin * whole.strides()[dim]);
}

// One collective: every rank brings its parts, one after another. They may have several dtypes, so bytes travel. Where ranks have kept the copies,
// they come from those.
void ShardGroup::start_gather() {
  if (is_shared() || group_->size() == 1 || under_way_ || (is_whole_ && stale().empty())) return;
  const NoGradScope no_grad;
  const TraceSpan span(TraceCategory::annotation, start_label_);
  const MemoryCategoryScope category(MemoryCategory::parameters);
  const bool is_near = has_kept();
  comm::ProcessGroup& from = is_near ? *near_ : *gathers_;
  Gather& gather = under_way_.emplace();
  for (int r = 0; r < from.size(); ++r) {
    int64_t bytes = 0;
    for (size_t i = 0; i < parts_.size(); ++i) bytes += nbytes(i, r, from.size());
    gather.outputs.push_back(Tensor::empty({bytes}, DType::u8));
  }
  if (is_near) {
    gather.input = kept_->bytes;
  } else {
    gather.input = Tensor::empty(gather.outputs[static_cast<size_t>(from.rank())].extents(), DType::u8);
    int64_t at = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].numel() > 0) copy_(piece_of(gather.input, at, parts_[i].extents(), copies_->leaves()[i].dtype()), parts_[i]);
      at += nbytes(i, from.rank(), from.size());
    }
  }
  kept_.reset();
  gather.versions = versions();
  gather.work = from.all_gather_v(gather.outputs, gather.input, {.async = true});
}

void ShardGroup::gather() {
  wait_for_gather();
  // Forward starts those of its list when the module begins, which may be later.
  if (all->is_backward() && !backward_prefetch.empty()) all->start(backward_prefetch);
  else if (all->is_backward() || forward_prefetch.empty()) all->prefetch();
}

void ShardGroup::wait_for_gather() {
  const NoGradScope no_grad;
  const TraceSpan span(TraceCategory::annotation, "FSDP::all_gather");
  const std::vector<size_t> changed = stale();
  if (group_->size() == 1) {
    copies_->restore();
    for (size_t i = 0; i < parts_.size(); ++i) copy_(copies_->writable(i), parts_[i]);
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
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Tensor to = part(copies_->writable(i), i, r, ranks);
      if (to.numel() > 0) copy_(to, piece_of(parts_of_ranks[static_cast<size_t>(r)], at, to.extents(), to.dtype()));
      at += nbytes(i, r, ranks);
    }
  }
}

void ShardGroup::before_forward() {
  if (is_shared() || forward_prefetch.empty() || graph::Trace::current() != nullptr) return;
  unshard();
  if (!autograd::is_backward_running()) all->start(forward_prefetch);  // else a region is computed again
}

void ShardGroup::after_forward(const Tensor& output) {
  is_finished_.clear();
  is_traced_ = inside_of(output).storage()->state() == StorageState::traced;
  const bool gives_back = reshards_after_forward();
  if (is_shared() || is_traced_ || (!gives_back && backward_prefetch.empty())) return;
  if (autograd::is_backward_running()) return;  // of a region that is computed again: its backward follows
  if (gives_back) reshard_after_forward();
  if (requires_grad(output)) {
    register_hook(output, [weak = weak_from_this()](const Tensor&) {
      if (const auto group = weak.lock()) group->before_backward();
      return Tensor();
    });
  }
}

void ShardGroup::before_backward() {
  unshard();
  all->start(backward_prefetch);
}

// Parameters without gradient are no reason to wait; one that a program does not use keeps the copies until the next forward.
void ShardGroup::finished(const Tensor& leaf) {
  if (is_shared() || !reshards_after_forward() || is_traced_) return;
  is_finished_.resize(parts_.size());
  bool all_are = true;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Tensor& own = leaves_[i];
    if (own.impl() == leaf.impl()) is_finished_[i] = true;
    all_are = all_are && (is_finished_[i] || !requires_grad(own));
  }
  if (!all_are) return;
  is_finished_.clear();
  reshard();
}

}  // namespace tutti::parallel

#include "tutti/parallel/shard_group.h"

#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/graph/trace.h"
#include "tutti/ops/copy.h"
#include "tutti/parallel/storage_placement.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_event.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::parallel {
namespace {

// Gathers have a group of their own: they are called while gradients are on their way, and when those start differs
// from rank to rank.
struct GatherGroups {
  std::map<std::string, std::weak_ptr<comm::ProcessGroup>> of;  // by the key of the group of the same ranks
};

// The `count` neighbours of this rank in it, or all ranks.
std::shared_ptr<comm::ProcessGroup> gather_group(comm::ProcessGroup& group, int64_t count) {
  std::weak_ptr<comm::ProcessGroup>& known =
      RankContext::current().slot<GatherGroups>().of[fmt::format("{}/{}", group.key(), count)];
  if (auto living = known.lock()) return living;
  std::vector<int> ranks(static_cast<size_t>(count));
  const int first = group.rank() / static_cast<int>(count) * static_cast<int>(count);
  std::iota(ranks.begin(), ranks.end(), first);
  auto made = group.split(
      ranks, {.name = count == group.size() ? group.name() + "/gathers"
                                            : fmt::format("{}/gathers of {} from {}", group.name(), count, first)});
  known = made;
  return made;
}

}  // namespace

ShardGroup::ShardGroup(std::string name, const dist::Mesh& mesh, int64_t keepers)
    : name_(std::move(name)),
      start_label_(intern_trace_name(fmt::format("FSDP::all_gather_copy_in ({})", name_))),
      mesh_(mesh),
      keepers_(keepers) {}

std::shared_ptr<ShardGroup> ShardGroup::make(std::string name, const std::vector<Stored>& parameters,
                                             const dist::Mesh& mesh, int64_t keepers) {
  const NoGradScope no_grad;
  const std::shared_ptr<ShardGroup> made(new ShardGroup(std::move(name), mesh, keepers));
  made->group_ = mesh->group(mesh->ndim() - 1).get();
  std::vector<ParameterCopies::Sizes> sizes;
  const auto lies_in_copy = [](const Stored& p) {
    return p.named.parameter.dtype() == p.named.parameter.use_dtype() && p.spec->placements().back().dim() == 0;
  };
  for (const Stored& p : parameters)
    sizes.push_back({p.spec->sizes(), p.named.parameter.use_dtype(), lies_in_copy(p) ? p.memory : Tensor()});
  made->copies_ = std::make_unique<ParameterCopies>(*made->group_, sizes);
  if (!made->is_shared() && made->group_->size() > 1)
    made->gathers_ = gather_group(*made->group_, made->group_->size());
  if (!parameters.empty() && parameters[0].storage != parameters[0].spec)
    made->replicas_ = gather_group(*mesh->group(0), mesh->size(0));
  if (made->gathers_ != nullptr && keepers > 1 && keepers < made->group_->size())
    made->near_ = gather_group(*made->group_, keepers);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const nn::Parameter& p = parameters[i].named.parameter;
    const dist::DTensorSpec& storage = *parameters[i].storage;
    const Tensor before = p.is_materialized() ? p.master() : Tensor();
    if (before.defined()) mark_replaced(p.leaf(), parameters[i].named.name);
    made->names_.push_back(parameters[i].named.name);
    made->specs_.push_back(parameters[i].spec);
    made->storage_.push_back(&storage);
    made->is_in_copy_.push_back(made->is_shared() && lies_in_copy(parameters[i]));
    const MemoryCategoryScope category(MemoryCategory::parameters);
    const Tensor whole = made->is_in_copy_[i] ? made->copies_->writable(i) : parameters[i].memory;
    Tensor part = whole.defined() ? dist::part_in_whole(whole, storage, mesh->coordinate())
                                  : Tensor::empty(storage.local_sizes(mesh->coordinate()), p.dtype());
    made->parts_.push_back(part);
    made->written_.push_back(-1);
    const Tensor& copy = made->copies_->leaves()[i];
    const Tensor leaf =
        parameters[i].read == nullptr ? copy : dist::wrap(copy, *parameters[i].read, parameters[i].readers);
    made->leaves_.push_back(leaf);
    if (!made->is_shared()) set_lender(copy, made.get());
    const Tensor master = dist::wrap(part, *parameters[i].master, parameters[i].mesh);
    set_storage_placement(leaf, std::make_unique<StoragePlacement>(
                                    storage, mesh, master, made, [weak = std::weak_ptr(made)](const Tensor& finished) {
                                      if (const auto group = weak.lock()) group->finished(finished);
                                    }));
    p.set_stored_apart({.full_name = parameters[i].named.name,
                        .master = master,
                        .copy = leaf,
                        .before_read = [made, i] { made->read(i); },
                        .before_write = [made] { made->will_change(); },
                        .has_values = parameters[i].memory.defined()});
    if (!before.defined()) continue;
    if (parameters[i].read == nullptr) {
      p.assign(before);
    } else {
      p.will_change();
      copy_(part, dist::part_in_whole(dist::part_of(before, "fully_shard").local, storage, mesh->coordinate()));
    }
  }
  made->reshard();  // nothing has been written
  return made;
}

// Who holds a copy may live on.
ShardGroup::~ShardGroup() {
  if (copies_ == nullptr || is_shared()) return;
  for (const Tensor& copy : copies_->leaves()) set_lender(copy, nullptr);
}

void ShardGroup::lend() {
  const ShardGroups::CompiledReads reads(*all);
  is_lent_ = true;
  unshard();
}

void ShardGroup::take_back(bool again) {
  const ShardGroups::CompiledReads reads(*all);
  if (again) reshard_after_forward();
  else reshard();
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

std::vector<size_t> ShardGroup::every_parameter() const {
  std::vector<size_t> all(parts_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

bool ShardGroup::is_stale(size_t i) const {
  return written_[i] != static_cast<int64_t>(parts_[i].storage()->version());
}

std::vector<size_t> ShardGroup::stale() const {
  std::vector<size_t> stale;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (is_stale(i)) stale.push_back(i);
  }
  return stale;
}

void ShardGroup::read(size_t i) {
  is_lent_ = false;
  if (!autograd::is_backward_running()) is_finished_.clear();
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
  if (all != nullptr && (is_whole_ || kept_)) all->note(this, ShardGroups::Copies::given_back);
  if (is_shared() || (all != nullptr && all->holds > 0)) return;
  copies_->release();
  kept_.reset();
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

std::function<void()> ShardGroup::write(const std::vector<size_t>& parameters) {
  const NoGradScope no_grad;
  Gather pieces = replicas_ != nullptr ? start_exchange(parameters) : Gather();
  for (const size_t i : parameters) {
    if (!is_in_copy_[i])
      copy_(part(copies_->writable(i), i, group_->rank(), group_->size(), replicas_ == nullptr ? 0 : replicas_->rank()),
            parts_[i]);
    written_[i] = static_cast<int64_t>(parts_[i].storage()->version());
    leaves_[i].storage()->bump_version();
  }
  return [this, parameters, pieces = std::move(pieces)] {
    if (replicas_ == nullptr) return;
    const NoGradScope no_grad;
    try {
      pieces.work.wait();
    } catch (...) {
      for (const size_t i : parameters) written_[i] = -1;  // the pieces of others are those of before
      throw;
    }
    for (int r = 0; r < replicas_->size(); ++r) {
      if (r != replicas_->rank()) take_piece(pieces.outputs[static_cast<size_t>(r)], parameters, r);
    }
  };
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

void ShardGroup::before_forward() {
  if (is_shared() || forward_prefetch.empty() || graph::Trace::current() != nullptr) return;
  unshard();
  if (!autograd::is_backward_running()) all->start(forward_prefetch);  // else a region is computed again
}

void ShardGroup::after_forward(const Tensor& output) {
  const bool is_traced = inside_of(output).storage()->state() == StorageState::traced;
  const bool gives_back = reshards_after_forward();
  if (is_shared() || is_traced || (!gives_back && backward_prefetch.empty())) return;
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

// Parameters without gradient are no reason to wait; one that a program does not use keeps the copies until the next
// forward.
void ShardGroup::finished(const Tensor& leaf) {
  if (is_shared() || !reshards_after_forward() || is_lent_) return;
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

#include "tutti/parallel/shard_group.h"

#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/graph/trace.h"
#include "tutti/ops/copy.h"
#include "tutti/parallel/gathered_copies.h"
#include "tutti/parallel/shared_page_copies.h"
#include "tutti/parallel/storage_placement.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::parallel {

ShardGroup::ShardGroup(std::string name, const std::vector<StoredParameter>& parameters, const dist::Mesh& mesh,
                       int64_t reshard_degree)
    : name_(std::move(name)), parameters_(parameters, mesh), reshard_degree_(reshard_degree) {
  if (is_shared()) source_ = std::make_unique<SharedPageCopies>(parameters_);
  else source_ = std::make_unique<GatheredCopies>(parameters_, name_, reshard_degree, [this] { all->begin_pieces(); });
}

std::shared_ptr<ShardGroup> ShardGroup::make(std::string name, const std::vector<StoredParameter>& parameters,
                                             const dist::Mesh& mesh, int64_t reshard_degree) {
  const NoGradScope no_grad;
  const std::shared_ptr<ShardGroup> made(new ShardGroup(std::move(name), parameters, mesh, reshard_degree));
  for (size_t i = 0; i < parameters.size(); ++i) made->store_apart(parameters[i], i);
  made->source_->release();  // nothing has been written
  return made;
}

// The parameter's functions keep the group alive, and its leaf must not.
void ShardGroup::store_apart(const StoredParameter& parameter, size_t i) {
  const nn::Parameter& p = parameter.named.parameter;
  const Tensor before = p.is_materialized() ? p.master() : Tensor();
  if (before.defined()) mark_replaced(p.leaf(), parameter.named.name);
  const std::shared_ptr<ShardGroup> self = shared_from_this();
  if (!is_shared()) set_lender(parameters_.copies().leaves()[i], this);
  const dist::Mesh& mesh = parameters_.mesh();
  const Tensor &part = parameters_.stored(i), &leaf = parameters_.leaf(i);
  const Tensor master = dist::wrap(part, *parameter.master, parameter.mesh);
  set_storage_placement(leaf, std::make_unique<StoragePlacement>(*parameter.storage, mesh, master, self,
                                                                 [weak = weak_from_this()](const Tensor& t) {
                                                                   if (const auto group = weak.lock())
                                                                     group->finished(t);
                                                                 }));
  p.set_stored_apart({.full_name = parameter.named.name,
                      .master = master,
                      .copy = leaf,
                      .before_read = [self, i] { self->read(i); },
                      .before_write = [self] { self->will_change(); },
                      .has_values = parameter.memory.defined()});
  if (!before.defined()) return;
  if (parameter.read == nullptr) {
    p.assign(before);
  } else {
    p.will_change();
    const Tensor own = dist::part_of(before, "fully_shard").local;
    copy_(part, dist::part_in_whole(own, *parameter.storage, mesh->coordinate()));
  }
}

// Who holds a copy may live on.
ShardGroup::~ShardGroup() {
  if (is_shared()) return;
  for (const Tensor& copy : parameters_.copies().leaves()) set_lender(copy, nullptr);
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

void ShardGroup::will_change() {
  if (all != nullptr && is_shared()) all->wait_for_readers();
}

void ShardGroup::read(size_t i) {
  is_lent_ = false;
  if (!autograd::is_backward_running()) is_finished_.clear();
  if (is_whole() && !parameters_.is_stale(i)) all->note(this, ShardGroups::Copies::whole);
  else unshard();
}

void ShardGroup::unshard() {
  all->note(this, ShardGroups::Copies::whole);
  if (is_whole() && parameters_.stale().empty()) return;
  if (is_shared()) all->publish();
  else gather();
}

void ShardGroup::gather() {
  source_->finish();
  // Forward starts those of its list when the module begins, which may be later.
  using Reader = ShardGroups::Reader;
  const Reader reader = all->reader();
  if (reader == Reader::backward && !backward_prefetch.empty()) all->start(backward_prefetch);
  else if (reader != Reader::forward || forward_prefetch.empty()) all->prefetch();
}

void ShardGroup::start_gather() {
  if (!is_shared()) source_->begin();
}

void ShardGroup::reshard() {
  if (is_whole() || source_->has_own_part()) all->note(this, ShardGroups::Copies::given_back);
  if (all->holds == 0) source_->release();
}

void ShardGroup::reshard_after_forward() {
  if (!source_->has_neighbours()) return reshard();
  all->note(this, ShardGroups::Copies::kept);
  if (is_whole() && all->holds == 0) source_->release_but_own_part();
}

void ShardGroup::set_reshard_after_forward(bool on) {
  reshard_degree_ = on ? ranks().size() : 1;
  source_->forget_neighbours();
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

// Backward has the gradients of a parameter. Parameters without gradient are no reason to wait; one that a program does
// not use keeps the copies until the next forward.
void ShardGroup::finished(const Tensor& leaf) {
  if (is_shared() || !reshards_after_forward() || is_lent_) return;
  is_finished_.resize(parameters_.size());
  bool all_are = true;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& own = parameters_.leaf(i);
    if (own.impl() == leaf.impl()) is_finished_[i] = true;
    all_are = all_are && (is_finished_[i] || !requires_grad(own));
  }
  if (!all_are) return;
  is_finished_.clear();
  reshard();
}

}  // namespace tutti::parallel

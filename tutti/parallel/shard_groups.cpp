// All groups of a model: what its ranks publish together, what is gathered ahead, and rounds that are replayed.
#include <algorithm>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/hash.h"
#include "tutti/parallel/publish_protocol.h"
#include "tutti/parallel/shard_group.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::parallel {

PublishProtocol& publish_protocol() {
  static PublishProtocol protocol;
  return protocol;
}

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
  std::vector<std::function<void()>> under_way;
  for (const auto& [group, stale] : changed) under_way.push_back(group->write(stale));
  for (const auto& finish : under_way) finish();
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

// What ranks read while all copies stay whole is no part of a round: they read unequally often.
void ShardGroups::note(const ShardGroup* group, Copies copies) {
  if (holds > 0) return;
  const Event event{group, copies, reader()};
  if (round_.empty() || round_.back() != event) round_.push_back(event);
}

void ShardGroups::prefetch() {
  if (round_.empty() || holds > 0) return;
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

void ShardGroups::start_joining() {
  const auto all = groups();
  if (!all.empty()) all.back()->start_joining();  // of the whole model, which is read first
  for (const auto& group : all) group->start_joining();
}

// What was gathered ahead and read by nobody goes.
void ShardGroups::begin_round() {
  round_before_ = std::exchange(round_, {});
  for (const auto& group : groups()) group->drop_gather();
}

void ShardGroups::replay_round() {
  struct Replay {
    std::optional<Reader>& reader;
    ~Replay() { reader.reset(); }
  } const replay{reader_};
  for (const Event& event : round_before_) {
    replay.reader = event.reader;
    for (const auto& group : groups()) {
      if (group.get() != event.group) continue;
      switch (event.copies) {
        case Copies::whole:
          group->unshard();
          break;
        case Copies::kept:
          group->reshard_after_forward();
          break;
        case Copies::given_back:
          group->reshard();
          break;
        case Copies::ahead:
          start({group});
          break;
      }
    }
  }
}

ShardGroups::Reader ShardGroups::reader() const {
  return reader_.value_or(autograd::is_backward_running() ? Reader::backward : Reader::forward);
}

}  // namespace tutti::parallel

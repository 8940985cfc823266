#include "tutti/parallel/shard_groups.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
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
    std::vector<size_t> stale = group->parameters().stale();
    agreement = hash64(stale.data(), stale.size() * sizeof(size_t), agreement + 1);
    if (!stale.empty()) changed.emplace_back(group, std::move(stale));
  }
  if (changed.empty()) return;
  const TraceSpan span(TraceCategory::annotation, "FSDP::publish");
  wait_for_readers();
  if (publish_protocol().poisons) poison(changed);
  for (const auto& [group, stale] : changed) group->source().begin();
  for (const auto& [group, stale] : changed) group->source().finish();
  if (publish_protocol().waits_for_writers) widest().barrier({.agreement = agreement});
  may_be_read_ = true;
}

namespace {

// Fills this rank's rows of the copies of some parameters with NaN; returns a function that gives them their values
// again (publish_protocol.h).
std::function<void()> poison_rows(const GroupParameters& parameters, const std::vector<size_t>& which) {
  struct Rows {
    Tensor tensor;
    std::vector<std::byte> values;
  };
  std::vector<Rows> poisoned;
  for (const size_t i : which) {
    const Tensor mine = parameters.rows(parameters.copies().writable(i), i, parameters.own_shard());
    if (mine.numel() == 0 || !mine.is_contiguous()) continue;
    auto* const at = static_cast<std::byte*>(mine.raw_data());
    poisoned.push_back({mine, {at, at + mine.nbytes()}});
    std::memset(at, 0xff, static_cast<size_t>(mine.nbytes()));
  }
  return [poisoned = std::move(poisoned)] {
    for (const Rows& r : poisoned) std::memcpy(r.tensor.raw_data(), r.values.data(), r.values.size());
  };
}

}  // namespace

void ShardGroups::poison(const Changed& changed) const {
  std::vector<std::function<void()>> restores;
  for (const auto& [group, stale] : changed) restores.push_back(poison_rows(group->parameters(), stale));
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
void ShardGroups::wait_for_readers() {
  if (!std::exchange(may_be_read_, false) || !publish_protocol().waits_for_readers) return;
  const TraceSpan span(TraceCategory::annotation, "FSDP::wait_for_readers");
  widest().barrier();
}

// Reads while all copies stay whole are no part of a round: ranks read unequally often.
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

void ShardGroups::begin_pieces() {
  const auto all = groups();
  if (!all.empty()) all.back()->source().begin_pieces();  // of the whole model, which is read first
  for (const auto& group : all) group->source().begin_pieces();
}

// A gather that was begun ahead, and that nobody read, goes.
void ShardGroups::begin_round() {
  round_before_ = std::exchange(round_, {});
  for (const auto& group : groups()) group->source().drop();
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

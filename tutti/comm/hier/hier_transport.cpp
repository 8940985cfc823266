#include "tutti/comm/hier/hier_transport.h"

#include <algorithm>
#include <cstring>

#include "tutti/comm/exchange_check.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int64_t kStagedBytes = 2 << 20;
constexpr int64_t kLine = 64;

int64_t largest(const Exchange& exchange) {
  int64_t bytes = 0;
  for (const ConstBlock& block : exchange.offers) bytes = std::max(bytes, block.bytes);
  for (const int64_t take : exchange.takes) bytes = std::max(bytes, take);
  return bytes;
}

int64_t part_of(int64_t total, int64_t offset, int64_t bytes) { return std::clamp<int64_t>(total - offset, 0, bytes); }

int64_t word(const std::vector<std::byte>& bytes, int64_t index) {
  int64_t value;
  std::memcpy(&value, bytes.data() + index * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

}  // namespace

HierTransport::HierTransport(std::unique_ptr<Transport> inner, std::unique_ptr<Transport> outer,
                             std::span<const int> hosts, std::string group)
    : inner_(inner.get()),
      outer_(outer.get()),
      inner_rank_(static_cast<size_t>(outer->size()), -1),
      group_(std::move(group)),
      piece_bytes_(std::clamp<int64_t>(kStagedBytes / outer->size() / kLine * kLine, 4 << 10, 256 << 10)),
      first_bytes_(std::min({piece_bytes_, inner->traits().one_round_bytes, outer->traits().one_round_bytes}) / kLine *
                       kLine -
                   kLine),
      traits_{.name = "hier",
              .devices = {DeviceKind::cpu},
              .receives_from_any = false,
              .waits_for_network = true,
              .one_round_bytes = first_bytes_,
              .hosts = even_hosts(hosts)},
      staged_(static_cast<size_t>(outer->size())),
      staged_bytes_(static_cast<size_t>(outer->size())) {
  TUTTI_CHECK(static_cast<int>(hosts.size()) == outer_->size(),
              "group '{}': the hosts of {} ranks are given for a group of {}", group_, hosts.size(), outer_->size());
  for (int p = 0; p < outer_->size(); ++p) {
    outer_side_.to_group.push_back(p);
    if (hosts[static_cast<size_t>(p)] != hosts[static_cast<size_t>(outer_->rank())]) continue;
    inner_rank_[static_cast<size_t>(p)] = static_cast<int>(inner_side_.to_group.size());
    inner_side_.to_group.push_back(p);
  }
  TUTTI_CHECK(static_cast<int>(inner_side_.to_group.size()) == inner_->size(),
              "group '{}': {} members share a host, but their transport has {} ranks", group_,
              inner_side_.to_group.size(), inner_->size());
  TUTTI_CHECK(inner_rank_[static_cast<size_t>(outer_->rank())] == inner_->rank(),
              "group '{}': rank {} is rank {} of its host, but {} of its host's transport", group_, outer_->rank(),
              inner_rank_[static_cast<size_t>(outer_->rank())], inner_->rank());
  inner_side_.transport = std::move(inner);
  outer_side_.transport = std::move(outer);
  inner_side_.owner = outer_side_.owner = this;
}

PeerIdentity HierTransport::peer(int rank) const {
  return is_local(rank) ? inner_->peer(inner_rank_[static_cast<size_t>(rank)]) : outer_->peer(rank);
}

// ---- pieces ---------------------------------------------------------------------------------------------------------

void HierTransport::start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) {
  TUTTI_ASSERT(!active_, "a round starts while another is under way");
  spread_failure();
  check_exchange(call, exchange, rank(), size());
  call_ = &call;
  exchange_ = &exchange;
  receiver_ = &receiver;
  if (step == 0) sub_step_ = 0;
  first_ = true;
  delivered_ = false;
  offset_ = 0;
  most_ = largest(exchange);
  // Uneven sizes are compared before any data move: the first piece holds only the tables then.
  bytes_ = call.same_sizes ? first_bytes_ : 0;
  begin_piece();
  active_ = true;
}

// In front of the first piece: the largest size, and for uneven calls what this rank offers and takes, per rank.
void HierTransport::begin_piece() {
  const Exchange& e = *exchange_;
  const int64_t front = !first_             ? 0
                        : call_->same_sizes ? kLine
                                            : (1 + 2 * int64_t{size()}) * static_cast<int64_t>(sizeof(int64_t));
  const size_t blocks = e.offers.size();
  const int64_t stride = front + std::min(bytes_, most_);
  if (first_) {
    std::vector<int64_t> words{most_};
    for (int p = 0; p < size() && !call_->same_sizes; ++p) words.push_back(e.offer_to(p).bytes);
    for (int p = 0; p < size() && !call_->same_sizes; ++p) words.push_back(e.take_from(p));
    outgoing_.assign(static_cast<size_t>(stride) * blocks, std::byte{0});
    for (size_t b = 0; b < blocks; ++b) {
      std::byte* at = outgoing_.data() + static_cast<int64_t>(b) * stride;
      std::memcpy(at, words.data(), words.size() * sizeof(int64_t));
      if (const int64_t part = part_of(e.offers[b].bytes, 0, bytes_); part > 0)
        std::memcpy(at + front, e.offers[b].data, static_cast<size_t>(part));
    }
  }
  for (int p = 0; p < size(); ++p) {
    staged_bytes_[static_cast<size_t>(p)] = 0;
    staged_[static_cast<size_t>(p)].resize(static_cast<size_t>(front + part_of(e.take_from(p), offset_, bytes_)));
  }
  for (Side* side : {&inner_side_, &outer_side_}) {
    side->offers.clear();
    side->takes.clear();
    side->finished = false;
    side->refused = nullptr;
    for (const int p : side->to_group) {
      // The outer side brings what comes from other hosts; the own part comes from the inner.
      const bool here = side == &inner_side_ || !is_local(p);
      const ConstBlock& whole = e.offer_to(p);
      const int64_t part = part_of(whole.bytes, offset_, bytes_);
      const size_t block = blocks == 1 ? 0 : static_cast<size_t>(p);
      const std::byte* data =
          first_ ? outgoing_.data() + static_cast<int64_t>(block) * stride : whole.data + (part > 0 ? offset_ : 0);
      side->offers.push_back(here ? ConstBlock{data, front + part} : ConstBlock{});
      side->takes.push_back(here ? static_cast<int64_t>(staged_[static_cast<size_t>(p)].size()) : 0);
    }
    side->exchange = {.offers = side->offers, .takes = side->takes};
    side->transport->start(*call_, sub_step_, side->exchange, *side);
  }
  ++sub_step_;
}

void HierTransport::Side::receive(std::span<const Arrival> from) {
  for (size_t p = 0; p < from.size(); ++p) {
    if (from[p].bytes == 0) continue;
    const auto rank = static_cast<size_t>(to_group[p]);
    std::memcpy(owner->staged_[rank].data() + from[p].offset, from[p].data, static_cast<size_t>(from[p].bytes));
    owner->staged_bytes_[rank] += from[p].bytes;
  }
}

bool HierTransport::advance_side(Side& side) {
  if (side.finished) return true;
  try {
    side.finished = side.transport->advance();
  } catch (const UsageError&) {
    side.refused = std::current_exception();
    side.finished = true;
  } catch (const EnvironmentError&) {
    spread_failure();
    throw;
  }
  return side.finished;
}

bool HierTransport::advance() {
  try {
    return advance_pieces();
  } catch (...) {
    active_ = false;
    throw;
  }
}

bool HierTransport::advance_pieces() {
  while (active_) {
    // Both, so that peers of either side can go on.
    const bool inner = advance_side(inner_side_), outer = advance_side(outer_side_);
    if (!inner || !outer) return false;
    if (inner_side_.refused || outer_side_.refused) {
      if (outer_side_.refused) std::rethrow_exception(outer_side_.refused);  // it has seen all ranks' calls
      try {
        std::rethrow_exception(inner_side_.refused);
      } catch (const UsageError& error) {
        fail(error.what());  // the other hosts do not know
        throw;
      }
    }
    end_piece();
  }
  return true;
}

void HierTransport::end_piece() {
  int64_t front = 0;
  if (first_) {
    front = call_->same_sizes ? kLine : static_cast<int64_t>(staged_[0].size());
    for (const auto& staged : staged_) most_ = std::max(most_, word(staged, 0));
    if (!call_->same_sizes) check_sizes();
  }
  std::vector<Arrival> arrivals(static_cast<size_t>(size()));
  bool any = false;
  for (size_t p = 0; p < arrivals.size(); ++p) {
    const int64_t part = static_cast<int64_t>(staged_[p].size()) - front;
    TUTTI_ASSERT(staged_bytes_[p] == static_cast<int64_t>(staged_[p].size()), "{} of {} bytes of rank {}",
                 staged_bytes_[p], staged_[p].size(), p);
    if (part > 0) arrivals[p] = {staged_[p].data() + front, part, offset_};
    any |= part > 0;
  }
  offset_ += bytes_;
  bytes_ = piece_bytes_;
  first_ = false;
  const bool is_last = offset_ >= most_;
  if (any || (is_last && !delivered_)) {
    delivered_ = true;
    receiver_->receive(arrivals);
  }
  if (is_last) active_ = false;
  else begin_piece();
}

void HierTransport::check_sizes() {
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const int64_t offered = word(staged_[static_cast<size_t>(from)], 1 + to);
      const int64_t taken = word(staged_[static_cast<size_t>(to)], 1 + size() + from);
      if (offered == taken) continue;
      throw UsageError(fmt::format(
          "collective #{} of group '{}', {}: the sizes differ: rank {} sends {} bytes to rank {}, which expects {}",
          call_->sequence, group_, name_of(call_->kind), from, offered, to, taken));
    }
  }
}

// ---- messages -------------------------------------------------------------------------------------------------------

void HierTransport::post(Message& message) {
  spread_failure();
  check_message(message, rank(), size());
  TUTTI_CHECK(message.peer >= 0,
              "receive with tag {} from any rank: not possible in group '{}', whose ranks sit on several hosts; "
              "name the sender, or make the group over one transport",
              message.tag, group_);
  auto posted = std::make_unique<Posted>();
  posted->message = &message;
  posted->is_inner = is_local(message.peer);
  posted->part = message;
  if (posted->is_inner) posted->part.peer = inner_rank_[static_cast<size_t>(message.peer)];
  message.finished = false;
  message.error.clear();
  Posted& p = *posted;
  posted_.push_back(std::move(posted));
  (p.is_inner ? inner_ : outer_)->post(p.part);
  advance_messages();
}

void HierTransport::advance_messages() {
  spread_failure();
  inner_->advance_messages();
  outer_->advance_messages();
  std::erase_if(posted_, [](const std::unique_ptr<Posted>& p) {
    p->message->done_bytes = p->part.done_bytes;
    if (!p->part.finished) return false;
    p->message->error = p->part.error;
    p->message->finished = true;
    return true;
  });
}

void HierTransport::cancel(Message& message) {
  std::erase_if(posted_, [&](const std::unique_ptr<Posted>& p) {
    if (p->message != &message) return false;
    (p->is_inner ? inner_ : outer_)->cancel(p->part);
    return true;
  });
}

void HierTransport::take_refusals(std::vector<Refusal>& into) {
  const size_t before = into.size();
  inner_->take_refusals(into);
  for (size_t i = before; i < into.size(); ++i) into[i].peer = inner_side_.to_group[static_cast<size_t>(into[i].peer)];
  outer_->take_refusals(into);
}

void HierTransport::look_after(int peer, const CallRecord& call) {
  if (is_local(peer)) inner_->look_after(inner_rank_[static_cast<size_t>(peer)], call);
  else outer_->look_after(peer, call);
}

// ---- waiting and failing --------------------------------------------------------------------------------------------

bool HierTransport::pause(uint32_t attempt, std::chrono::microseconds limit) {
  // Asleep on one side, the other is not heard: so in turns, and briefly.
  const auto half = std::min(limit / 2, std::chrono::microseconds(attempt < 1000 ? 100 : 1000));
  const bool inner_waits = !active_
                               ? std::any_of(posted_.begin(), posted_.end(), [](const auto& p) { return p->is_inner; })
                               : !inner_side_.finished;
  const bool outer_waits = !active_
                               ? std::any_of(posted_.begin(), posted_.end(), [](const auto& p) { return !p->is_inner; })
                               : !outer_side_.finished;
  if (inner_waits && !outer_waits) inner_->pause(attempt, limit);
  else if (outer_waits && !inner_waits) outer_->pause(attempt, limit);
  else {
    inner_->pause(attempt, half);
    outer_->pause(attempt, half);
  }
  spread_failure();
  return true;
}

std::vector<int> HierTransport::late_ranks() const {
  std::vector<int> late;
  if (!active_) return late;
  if (!inner_side_.finished) {
    for (const int p : inner_->late_ranks()) late.push_back(inner_side_.to_group[static_cast<size_t>(p)]);
  }
  if (!outer_side_.finished) {
    for (const int p : outer_->late_ranks()) late.push_back(p);
  }
  std::sort(late.begin(), late.end());
  late.erase(std::unique(late.begin(), late.end()), late.end());
  return late;
}

std::string HierTransport::last_seen(int rank) const {
  return is_local(rank) ? inner_->last_seen(inner_rank_[static_cast<size_t>(rank)]) : outer_->last_seen(rank);
}

void HierTransport::fail(std::string_view reason) {
  inner_->fail(reason);
  outer_->fail(reason);
}

void HierTransport::abandon() {
  active_ = false;
  inner_->abandon();
  outer_->abandon();
}

std::string HierTransport::failure() const {
  const std::string inner = inner_->failure();
  return inner.empty() ? outer_->failure() : inner;
}

// Who learns of a failure on one side tells the other.
void HierTransport::spread_failure() {
  const std::string inner = inner_->failure(), outer = outer_->failure();
  if (inner.empty() && outer.empty()) return;
  if (inner.empty()) inner_->fail(outer);
  if (outer.empty()) outer_->fail(inner);
}

}  // namespace tutti::comm

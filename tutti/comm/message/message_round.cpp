#include "tutti/comm/message/message_round.h"

#include <cstring>

#include "tutti/comm/call_mismatch.h"
#include "tutti/comm/exchange_check.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int64_t kHeads = sizeof(PacketHead) + sizeof(RoundHead);

// What a foreign record says is used as an index when it is described.
bool can_be_described(const CallRecord& r) {
  return static_cast<int>(r.kind) < kNumCollectiveKinds && static_cast<int>(r.reduce) < kNumReduceKinds &&
         static_cast<int>(r.dtype) < kNumDTypes && r.ndim >= -1 && r.ndim <= kMaxRecordDims;
}

}  // namespace

MessageRound::MessageRound(PacketLine& line, std::string group)
    : line_(line),
      group_(std::move(group)),
      rank_(line.rank()),
      size_(line.size()),
      chunk_(chunk_bytes(size_)),
      inline_(inline_bytes(size_)),
      peers_(static_cast<size_t>(size_)),
      arrivals_(static_cast<size_t>(size_)) {}

const RoundHead& MessageRound::round_head(const Packet& packet) {
  return *reinterpret_cast<const RoundHead*>(packet.data() + sizeof(PacketHead));
}

const std::byte* MessageRound::inlined(const Packet& head) const {
  return head.data() + kHeads + tables_in(round_head(head).record);
}

void MessageRound::start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) {
  TUTTI_ASSERT(phase_ == Phase::idle, "a round starts while another is under way");
  check_exchange(call, exchange, rank_, size_);
  call_ = &call;
  exchange_ = &exchange;
  receiver_ = &receiver;
  fingerprint_ = call.fingerprint() + static_cast<uint64_t>(step);
  delivered_ = false;
  ended_between_two_ = false;
  own_taken_ = 0;
  ++number_;
  for (Peer& peer : peers_) peer.received = peer.taken = peer.sent = 0;
  phase_ = Phase::heads;
  send_heads();
}

void MessageRound::send_heads() {
  std::vector<int64_t> tables(static_cast<size_t>(tables_in(*call_)) / sizeof(int64_t));
  if (!tables.empty()) {
    for (int p = 0; p < size_; ++p) {
      tables[static_cast<size_t>(p)] = exchange_->offer_to(p).bytes;
      tables[static_cast<size_t>(size_ + p)] = exchange_->take_from(p);
    }
  }
  // Beginning behind the own rank, so that not everybody sends to rank 0 first.
  for (int i = 1; i < size_; ++i) {
    const int to = (rank_ + i) % size_;
    const ConstBlock& offer = exchange_->offer_to(to);
    const RoundHead head{
        .fingerprint = fingerprint_, .offered = offer.bytes, .taken = exchange_->take_from(to), .record = *call_};
    line_.send(
        to, {.kind = PacketKind::round, .number = number_, .bytes = offer.bytes},
        {{reinterpret_cast<const std::byte*>(&head), sizeof head},
         {reinterpret_cast<const std::byte*>(tables.data()), static_cast<int64_t>(tables.size() * sizeof(int64_t))},
         travels_inline(offer.bytes) ? offer : ConstBlock{}});
  }
}

void MessageRound::arrived(const PacketHead& head, Packet&& packet) {
  Peer& peer = peers_[static_cast<size_t>(packet.from)];
  const int from = packet.from;
  switch (head.kind) {
    case PacketKind::round: {
      if (packet.bytes < kHeads) throw_bad_packet(from, "the head of a round that is cut off");
      const RoundHead& round = round_head(packet);
      if (!can_be_described(round.record)) throw_bad_packet(from, "a call that does not exist");
      const int64_t in_line = travels_inline(round.offered) ? round.offered : 0;
      if (head.number != peer.next_head || peer.heads.size() > 1) throw_bad_packet(from, "rounds out of order");
      if (round.offered < 0 || round.taken < 0 || packet.bytes != kHeads + tables_in(round.record) + in_line) {
        throw_bad_packet(
            from, fmt::format("the head of a round with {} bytes for an offer of {}", packet.bytes, round.offered));
      }
      ++peer.next_head;
      peer.call = round.record;
      peer.has_called = true;
      peer.heads.push_back(std::move(packet));
      return;
    }
    case PacketKind::data: {
      const int64_t bytes = packet.bytes - static_cast<int64_t>(sizeof(PacketHead));
      // Its head says how much there is; a peer sends data only when all heads have come, so this rank has sent its
      // own.
      const bool fits = phase_ != Phase::idle && head.number == number_ && !peer.heads.empty() &&
                        head.offset == peer.received &&
                        bytes == std::min(chunk_, round_head(peer.heads.front()).offered - peer.received) &&
                        bytes > 0 && peer.data.size() < static_cast<size_t>(kWindowChunks);
      if (!fits)
        throw_bad_packet(
            from, fmt::format("{} bytes at {} of round {} that nobody asked for", bytes, head.offset, head.number));
      peer.received += bytes;
      peer.data.push_back(std::move(packet));
      return;
    }
    default:
      // A grant for a round that has ended says nothing new.
      if (phase_ == Phase::moving && head.number == number_) peer.granted = std::max(peer.granted, head.offset);
      line_.recycle(std::move(packet));
  }
}

bool MessageRound::advance() {
  if (phase_ == Phase::heads) {
    for (int p = 0; p < size_; ++p) {
      if (p != rank_ && peers_[static_cast<size_t>(p)].heads.empty()) return false;
    }
    compare();
    begin_moving();
  }
  if (phase_ == Phase::moving) {
    const bool sent = send_data();
    if (!(together_ ? deliver_together() : deliver_what_came()) || !sent) return false;
    drop();
  }
  return true;
}

void MessageRound::drop() {
  if (phase_ == Phase::idle) return;
  phase_ = Phase::idle;
  for (Peer& peer : peers_) {
    if (!peer.heads.empty()) {
      line_.recycle(std::move(peer.heads.front()));
      peer.heads.pop_front();
    }
  }
}

// ---- comparing ------------------------------------------------------------------------------------------------------

void MessageRound::compare() {
  bool same = true;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    const RoundHead& head = round_head(peers_[static_cast<size_t>(p)].heads.front());
    same &= head.fingerprint == fingerprint_ && head.record.same_sizes == call_->same_sizes &&
            !differing_field(head.record, *call_);
  }
  if (!same) {
    std::vector<CallRecord> records;
    for (int p = 0; p < size_; ++p) {
      records.push_back(p == rank_ ? *call_ : round_head(peers_[static_cast<size_t>(p)].heads.front()).record);
    }
    drop();
    throw_mismatch(group_, records);
  }
  compare_sizes();
}

void MessageRound::compare_sizes() {
  const bool has_tables = !call_->same_sizes;
  // What `of` says: its offer to `peer`, or (row 1) what it takes from it.
  const auto said = [&](int of, int row, int peer) {
    if (of == rank_) return row == 0 ? exchange_->offer_to(peer).bytes : exchange_->take_from(peer);
    const Packet& head = peers_[static_cast<size_t>(of)].heads.front();
    if (!has_tables) return row == 0 ? round_head(head).offered : round_head(head).taken;
    int64_t bytes;
    std::memcpy(&bytes, head.data() + kHeads + (row * size_ + peer) * static_cast<int64_t>(sizeof bytes), sizeof bytes);
    return bytes;
  };
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      if (!has_tables && (from == to || (from != rank_ && to != rank_))) continue;
      const int64_t offered = said(from, 0, to), taken = said(to, 1, from);
      if (offered == taken) continue;
      const std::string message = fmt::format(
          "collective #{} of group '{}', {}: the sizes differ: rank {} sends {} bytes to rank {}, which expects {}",
          call_->sequence, group_, name_of(call_->kind), from, offered, to, taken);
      ended_between_two_ = !has_tables;
      drop();
      throw UsageError(message);
    }
  }
}

// ---- moving ---------------------------------------------------------------------------------------------------------

void MessageRound::begin_moving() {
  phase_ = Phase::moving;
  together_ = true;
  for (int p = 0; p < size_; ++p) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    peer.told = peer.granted = kWindowChunks * chunk_;
    together_ &= exchange_->take_from(p) == exchange_->take_from(rank_);
  }
}

// True when everything has been sent.
bool MessageRound::send_data() {
  bool all = true;
  for (int i = 1; i < size_; ++i) {
    const int to = (rank_ + i) % size_;
    Peer& peer = peers_[static_cast<size_t>(to)];
    const ConstBlock& offer = exchange_->offer_to(to);
    if (travels_inline(offer.bytes)) continue;
    while (peer.sent < std::min(peer.granted, offer.bytes)) {
      const int64_t part = std::min(chunk_, offer.bytes - peer.sent);
      line_.send(to, {.kind = PacketKind::data, .number = number_, .offset = peer.sent, .bytes = offer.bytes},
                 {{offer.data + peer.sent, part}});
      peer.sent += part;
    }
    all &= peer.sent == offer.bytes;
  }
  return all;
}

// The next part of `rank`'s offer.
void MessageRound::give(Peer& peer, int rank, Arrival& arrival) {
  const int64_t total = exchange_->take_from(rank);
  arrival = {};
  if (peer.taken == total) return;
  arrival.offset = peer.taken;
  if (travels_inline(total)) {
    arrival.data = inlined(peer.heads.front());
    arrival.bytes = total;
  } else {
    Packet packet = std::move(peer.data.front());
    peer.data.pop_front();
    arrival.bytes = packet.bytes - static_cast<int64_t>(sizeof(PacketHead));
    arrival.data = packet.data() + sizeof(PacketHead);
    spent_.push_back(std::move(packet));
  }
  peer.taken += arrival.bytes;
}

// Tells a peer when it may send on.
void MessageRound::has_taken(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const int64_t total = exchange_->take_from(rank);
  if (travels_inline(total) || peer.told >= total) return;
  const int64_t grant = peer.taken + kWindowChunks * chunk_;
  if (grant - peer.told < 2 * chunk_ && grant < total) return;
  peer.told = grant;
  line_.send(rank, {.kind = PacketKind::grant, .number = number_, .offset = grant});
}

// The two deliver_* return true when everything has been taken.
bool MessageRound::deliver_together() {
  const int64_t total = exchange_->take_from(rank_);
  while (!delivered_ || own_taken_ < total) {
    if (!travels_inline(total)) {
      for (int p = 0; p < size_; ++p) {
        if (p != rank_ && peers_[static_cast<size_t>(p)].data.empty()) return false;
      }
    }
    const int64_t part = size_ == 1 || travels_inline(total) ? total : std::min(chunk_, total - own_taken_);
    for (int p = 0; p < size_; ++p) {
      Arrival& arrival = arrivals_[static_cast<size_t>(p)];
      if (p != rank_) give(peers_[static_cast<size_t>(p)], p, arrival);
      else arrival = part == 0 ? Arrival{} : Arrival{exchange_->offer_to(rank_).data + own_taken_, part, own_taken_};
    }
    own_taken_ += part;
    delivered_ = true;
    receiver_->receive(arrivals_);
    for (Packet& packet : spent_) line_.recycle(std::move(packet));
    spent_.clear();
    for (int p = 0; p < size_; ++p) {
      if (p != rank_) has_taken(p);
    }
  }
  return true;
}

bool MessageRound::deliver_what_came() {
  const int64_t own = exchange_->take_from(rank_);
  for (;;) {
    bool any = !delivered_, all = true;
    for (int p = 0; p < size_; ++p) {
      Arrival& arrival = arrivals_[static_cast<size_t>(p)];
      arrival = {};
      if (p == rank_) {
        if (own_taken_ < own) arrival = {exchange_->offer_to(rank_).data, own, 0};
        own_taken_ = own;
      } else {
        Peer& peer = peers_[static_cast<size_t>(p)];
        const int64_t total = exchange_->take_from(p);
        if (peer.taken < total && (travels_inline(total) || !peer.data.empty())) give(peer, p, arrival);
        all &= peer.taken == total;
      }
      any |= arrival.bytes > 0;
    }
    if (any) {
      delivered_ = true;
      receiver_->receive(arrivals_);
      for (Packet& packet : spent_) line_.recycle(std::move(packet));
      spent_.clear();
      for (int p = 0; p < size_; ++p) {
        if (p != rank_) has_taken(p);
      }
    }
    if (all) return true;
    if (!any) return false;
  }
}

// ---- who is late ----------------------------------------------------------------------------------------------------

std::vector<int> MessageRound::waited_for() const {
  std::vector<int> ranks;
  for (int p = 0; p < size_ && phase_ != Phase::idle; ++p) {
    if (p == rank_) continue;
    const Peer& peer = peers_[static_cast<size_t>(p)];
    const bool no_data = phase_ == Phase::moving && peer.taken < exchange_->take_from(p) && peer.data.empty();
    const bool no_grant = phase_ == Phase::moving && !travels_inline(exchange_->offer_to(p).bytes) &&
                          peer.sent < exchange_->offer_to(p).bytes;
    if (peer.heads.empty() || no_data || no_grant) ranks.push_back(p);
  }
  return ranks;
}

const CallRecord* MessageRound::last_call(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return peer.has_called ? &peer.call : nullptr;
}

std::string MessageRound::name() const { return fmt::format("{} #{}", name_of(call_->kind), call_->sequence); }

}  // namespace tutti::comm

// An Exchange over packets.
//
// 1. Every rank sends every other rank a head: its call, what it offers to that peer and takes from it, and the offer
//    itself if it is small. A small collective is one packet per peer.
// 2. When all heads have arrived, the calls are compared. Before that no data of a peer is used, and no further data is
// sent.
// 3. Larger offers are sent in chunks. A receiver grants a window per peer, and more as its own Receiver takes chunks,
// so
//    the data queued at a rank is bounded by kWindowBytes however large the offers are.
// A rank can be ahead of another by at most one head, because it needs the heads of all ranks to finish a round.
//
// Steps: 1 for small offers, 2 and the data for larger ones. Bytes on the wire: the offers, one head of 256 bytes per
// pair, 64 bytes per chunk, and 16 W bytes per pair for calls with uneven sizes.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/message/packet_line.h"

namespace tutti::comm {

class MessageRound {
 public:
  MessageRound(PacketLine& line, std::string group);

  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver);
  bool is_idle() const { return phase_ == Phase::idle; }
  // True when the round is finished. UsageError when the calls differ: the round is over then, on all ranks.
  bool advance();
  // `packet` is a round, data or grant. EnvironmentError when no rank of this version sends such a packet.
  void arrived(const PacketHead& head, Packet&& packet);
  // Forgets the round under way.
  void drop();

  // The ranks this one waits for.
  std::vector<int> waited_for() const;
  // The last call that `rank` is known to have made; null when there is none.
  const CallRecord* last_call(int rank) const;
  // "all_reduce #41": the round under way.
  std::string name() const;
  int64_t number() const { return number_; }
  // Whether the sizes that did not fit were seen by this rank and the other one only, so that the others must be told.
  bool ended_between_two() const { return ended_between_two_; }

 private:
  enum class Phase : uint8_t { idle, heads, moving };
  struct Peer {
    std::deque<Packet> heads;  // of this round and at most the next
    std::deque<Packet> data;
    int64_t next_head = 1;  // number of the round whose head comes next
    int64_t received = 0;   // bytes of this round's data, whether taken or not
    int64_t taken = 0;
    int64_t told = 0;  // the grant this rank has given
    int64_t sent = 0;
    int64_t granted = 0;  // the grant this rank has got
    CallRecord call;
    bool has_called = false;
  };

  void send_heads();
  void compare();
  void compare_sizes();
  void begin_moving();
  bool send_data();
  bool deliver_together();
  bool deliver_what_came();
  void give(Peer& peer, int rank, Arrival& arrival);
  void has_taken(int rank);
  bool travels_inline(int64_t bytes) const { return bytes <= inline_; }
  const std::byte* inlined(const Packet& head) const;
  int64_t tables_in(const CallRecord& call) const { return call.same_sizes ? 0 : table_bytes(size_); }
  static const RoundHead& round_head(const Packet& packet);

  PacketLine& line_;
  const std::string group_;
  const int rank_;
  const int size_;
  const int64_t chunk_;
  const int64_t inline_;
  std::vector<Peer> peers_;

  Phase phase_ = Phase::idle;
  int64_t number_ = 0;
  const CallRecord* call_ = nullptr;
  const Exchange* exchange_ = nullptr;
  Receiver* receiver_ = nullptr;
  uint64_t fingerprint_ = 0;
  bool together_ = false;   // every rank offers this one equally much
  bool delivered_ = false;  // the receiver has been called
  bool ended_between_two_ = false;
  int64_t own_taken_ = 0;
  std::vector<Arrival> arrivals_;
  std::vector<Packet> spent_;  // what arrivals_ refers to
};

}  // namespace tutti::comm

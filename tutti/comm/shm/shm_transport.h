// The transport for ranks that share memory: processes of one host, or threads of one process.
//
// A round is a series of meetings. At each meeting a rank puts the next part of its offer where all can read it,
// publishes a line, reads the lines of all ranks, and takes its data. Small offers are stored in the line itself.
// Larger ones are staged in two alternating slots, so that writing a part overlaps with reading the previous one.
// Offers that peers can read in place (threads; registered symmetric memory) are not copied at all, and large ones of
// processes are copied once, by the kernel, where it lets them (peer_memory.h). A fingerprint in the line shows whether
// all ranks make the same call before any data is used.
#pragma once

#include <memory>
#include <vector>

#include "tutti/comm/shm/peer_memory.h"
#include "tutti/comm/shm/segment.h"
#include "tutti/comm/shm/shm_mail.h"
#include "tutti/comm/shm/shm_watch.h"
#include "tutti/comm/transport.h"

namespace tutti::comm {

struct ShmOptions {
  std::string group = "0";            // for messages
  bool one_address_space = false;     // all ranks are threads of this process
  std::vector<int> shown_ranks = {};  // rank numbers for messages; empty: the group ranks
  std::vector<int> world_ranks = {};  // of the members, for messages; empty: not known
  int local_ranks = 0;   // ranks on this host; if more than cores, waiting yields immediately. 0: the group's size
  bool may_pull = true;  // large offers of processes are copied by the kernel, if it lets all ranks
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(std::shared_ptr<Segment> segment, int rank, ShmOptions options);
  ~ShmTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const TransportTraits& traits() const override { return traits_; }
  PeerIdentity peer(int rank) const override { return watch_.peer(rank); }
  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) override;
  bool advance() override;
  void post(Message& message) override { mail_.post(message); }
  void advance_messages() override;
  void cancel(Message& message) override { mail_.cancel(message); }
  void take_refusals(std::vector<Refusal>& into) override;
  void look_after(int peer, const CallRecord& call) override;
  bool pause(uint32_t attempt, std::chrono::microseconds limit) override;
  std::vector<int> late_ranks() const override;
  std::string last_seen(int rank) const override;
  void interrupt() override;
  void fail(std::string_view reason) override { segment_->fail(reason); }
  void abandon() override;
  std::string failure() const override { return segment_->failure(); }

  int64_t add_region(std::vector<std::byte*> bases, int64_t bytes) override;
  void remove_region(int64_t region) override;

  // Whether large offers are copied by the kernel. Known after the first two rounds.
  bool pulls() const { return peer_memory_.is_open(); }

 private:
  struct Region {
    std::vector<std::byte*> bases;
    int64_t bytes;
  };
  enum class Phase : uint8_t { idle, meeting, draining };

  void publish();
  void publish_first();
  bool all_arrived();
  void compare();
  void say_consumed();
  void settle_pulling();
  void check_takes() const;
  void deliver();
  void pull_and_deliver();
  void pull_to_places();
  void pull_in_blocks();
  void pull(int peer, int64_t offset, std::byte* to, int64_t bytes);
  void deliver_from_threads();
  bool is_late(int rank) const;
  void look_after_peers();
  std::string why_no_message(const Message& message);
  bool has_news();
  bool waits_for_own_core() const;
  void throw_if_failed() const;
  void leave_if_failed();
  int64_t part_bytes(bool one_block) const;
  bool find_direct(const ConstBlock& block, DirectBlock& out) const;
  bool offers_directly(Line& line);
  bool lets_pull(Line& line, int64_t largest);
  const std::byte* direct_address(int from, const DirectBlock& block) const;

  std::shared_ptr<Segment> segment_;
  const int rank_;
  const int size_;
  const ShmOptions options_;
  TransportTraits traits_;
  ShmWatch watch_;
  ShmMail mail_;
  PeerMemory peer_memory_;
  std::vector<Region> regions_;  // numbers are never given again: peers may let go of theirs at another time

  // The round under way.
  Phase phase_ = Phase::idle;
  const CallRecord* call_ = nullptr;
  const Exchange* exchange_ = nullptr;
  Receiver* receiver_ = nullptr;
  uint64_t fingerprint_ = 0;
  bool first_step_ = false;
  OfferMode mode_ = OfferMode::in_line;  // of this rank's offer
  bool all_direct_ = false;              // nobody stages: one part is all
  bool any_direct_ = false;              // a peer waits until its offer has been read
  bool reads_in_place_ = false;
  bool any_pulled_ = false;  // in this round or, until all have arrived, in the one before
  int64_t part_ = 0;
  int64_t parts_ = 1;
  uint64_t meeting_ = 0;
  int next_to_look_at_ = 0;
  std::vector<Arrival> arrivals_;
  std::vector<uint64_t> pulled_from_;  // address of each rank's offer in its process; 0: it is not pulled
  std::vector<std::byte*> places_;
  std::vector<std::byte> pulled_;  // blocks that have no place
};

}  // namespace tutti::comm

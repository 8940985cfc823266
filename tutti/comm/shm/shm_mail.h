// Messages between two ranks that share memory: one ring buffer per direction, with frames of header, payload and an
// end mark that tells whether the sender has withdrawn the message in between.
//
// Frames of one ring are in the order in which they were posted. A receiver that waits for a later tag first sets
// earlier frames aside, so order is kept per sender and tag, and a sender is never blocked by a tag that is not being
// received yet. A receiver whose dtype or length differs from the message's refuses it, and tells the sender in a list
// next to the ring.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/refusals.h"
#include "tutti/comm/shm/segment.h"
#include "tutti/comm/transport.h"

namespace tutti::comm {

// One rank's side. Belongs to one thread at a time.
class ShmMail {
 public:
  // shown_ranks[r] is what messages call rank r; empty: r.
  ShmMail(std::shared_ptr<Segment> segment, int rank, std::vector<int> shown_ranks = {});

  void post(Message& message);
  // Transfers what it can; true when anything was transferred (peers may be waiting for it).
  bool advance();
  // Whether advance() would find something to do, with any peer or with this one. Bytes that nobody has asked for yet
  // are no news.
  bool has_news() const;
  bool has_news_of(int peer) const;
  void cancel(Message& message);
  bool is_idle() const { return posted_ == 0; }
  // Reads what the peers have refused, whether anything is posted or not.
  void read_refusals();
  void take_refusals(std::vector<Refusal>& into);
  // The posted messages that have not finished.
  std::vector<const Message*> waiting() const;

 private:
  struct Frame {
    uint32_t tag = 0;
    DType dtype = DType::u8;
    int64_t bytes = 0;
    int64_t call = 0;     // number of the call that sends it
    uint64_t number = 0;  // among the frames of the ring
  };
  enum class End : uint64_t { whole, withdrawn };  // behind the payload
  // The state of the message that is being read from a peer's ring.
  struct Incoming {
    bool in_frame = false;
    Frame frame;
    int64_t done = 0;
    Message* target = nullptr;  // null: `aside` takes it, or nobody does
    std::vector<std::byte> aside;
    bool discard = false;
  };
  struct Aside {
    int from;
    Frame frame;
    std::vector<std::byte> data;
  };
  // The state of the messages that are being written to a peer's ring.
  struct Outgoing {
    std::deque<Message*> queue;
    bool header_sent = false;
    bool withdrawn = false;  // the message whose header was sent has been cancelled
    int64_t owed = 0;        // bytes of its payload that the frame lacks
    uint64_t frames = 0;     // begun so far
    bool is_idle() const { return queue.empty() && !withdrawn; }
  };

  bool write_to(int peer);
  bool write_end(int peer, End end);
  bool read_from(int peer);
  bool begin_frame(int peer);
  bool read_refusals_of(int peer);
  void end_frame(int peer, End end);
  void was_refused(int peer, const RefusedMessage& refused);
  Message* find_receiver(int from, uint32_t tag);
  bool deliver_aside(Message& message);
  bool refuse(Message& message, int from, const Frame& frame);
  int name_of(int rank) const { return shown_ranks_.empty() ? rank : shown_ranks_[static_cast<size_t>(rank)]; }
  void finish(Message& message);
  void fail(Message& message, const std::string& error);

  std::shared_ptr<Segment> segment_;
  const int rank_;
  const int size_;
  const std::vector<int> shown_ranks_;
  std::vector<Refusal> refusals_;
  bool has_refused_ = false;  // a peer, which may sleep
  int64_t posted_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::list<Message*> receivers_;  // in the order they were posted
  std::list<Aside> aside_;         // in the order they came
};

}  // namespace tutti::comm

// Messages between two ranks that share memory: a ring of bytes per direction, frames of header and payload.
//
// Frames of one ring are in the order they were posted. A receiver that wants a later tag first puts the earlier frames
// aside; so order holds per sender and tag, and no sender is ever stuck behind a tag nobody asked for yet.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "tutti/comm/shm/segment.h"
#include "tutti/comm/transport.h"

namespace tutti::comm {

// One rank's side. Belongs to one thread at a time.
class ShmMail {
 public:
  ShmMail(std::shared_ptr<Segment> segment, int rank);

  void post(Message& message);
  // Moves what can be moved; true when anything was (peers may wait for it).
  bool advance();
  // Whether advance() would find something to do, with any peer or with this one. Bytes that nobody has asked for yet
  // are no news.
  bool has_news() const;
  bool has_news_of(int peer) const;
  void cancel(Message& message);
  bool is_idle() const { return posted_ == 0; }
  // The posted messages that have not finished.
  std::vector<const Message*> waiting() const;

 private:
  struct Frame {
    uint32_t tag = 0;
    uint32_t reserved = 0;
    int64_t bytes = 0;
  };
  // What is being read from a peer's ring.
  struct Incoming {
    bool in_frame = false;
    Frame frame;
    int64_t done = 0;
    Message* target = nullptr;       // null: `aside` takes it, or nobody does
    std::vector<std::byte> aside;
    bool discard = false;
  };
  struct Aside {
    int from;
    Frame frame;
    std::vector<std::byte> data;
  };
  // What is being written to a peer's ring.
  struct Outgoing {
    std::deque<Message*> queue;
    bool header_sent = false;
    int64_t skip = 0;  // bytes of a cancelled message that the frame still owes
  };

  bool write_to(int peer);
  bool read_from(int peer);
  bool begin_frame(int peer);
  void end_frame(int peer);
  Message* find_receiver(int from, uint32_t tag);
  bool deliver_aside(Message& message);
  static void refuse(Message& message, int from, int64_t sent);
  void finish(Message& message);

  std::shared_ptr<Segment> segment_;
  const int rank_;
  const int size_;
  int64_t posted_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::list<Message*> receivers_;  // in the order they were posted
  std::list<Aside> aside_;         // in the order they came
};

}  // namespace tutti::comm

// Point-to-point messages over packets.
//
// A small message is one packet, unless its receiver has fallen too far behind in reading small ones. For other
// messages only an envelope is sent; the bytes follow once a matching receive has been posted, directly into its
// memory, one window at a time, where the total granted to all senders is bounded. Envelopes are matched in the order
// in which they arrive, so order is kept per sender and tag.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/comm/message/packet_line.h"
#include "tutti/comm/refusals.h"

namespace tutti::comm {

class MessageMail {
 public:
  explicit MessageMail(PacketLine& line);

  void post(Message& message);
  void cancel(Message& message);
  // `packet` is of one of the kinds mail*.
  void arrived(const PacketHead& head, Packet&& packet);
  // Ends all posted messages with an error.
  void end_all(const std::string& error);

  // The ranks that posted messages wait for; -1 stands for any.
  std::vector<int> waited_for() const;
  void take_refusals(std::vector<Refusal>& into);
  // "recv #3": a message that waits for `peer`.
  std::string name_of_wait(int peer) const;

 private:
  struct Envelope {
    int from;
    uint32_t tag;
    int64_t id;
    int64_t call;
    DType dtype;
    int64_t bytes;
    bool has_data;
    std::vector<std::byte> data;
  };
  struct Receiving {
    Message* message;
    int64_t told;
  };
  using Receivings = std::map<std::pair<int, int64_t>, Receiving>;  // by sender and its id
  struct Sending {
    Message* message;
    int64_t granted;
  };

  void envelope_came(int from, const PacketHead& head, const Packet& packet);
  void data_came(int from, const PacketHead& head, const Packet& packet);
  void withdrawn(int from, int64_t id);
  void was_refused(int by, const PacketHead& head, std::string text);
  // `data`: of a small message.
  void take_envelope(Message& message, const Envelope& envelope, const std::byte* data);
  void has_read(int from, int64_t bytes);
  void grant(Receivings::iterator it);
  void stop_receiving(Receivings::iterator it);
  void feed_hungry();
  void send_on(int64_t id, Sending& sending);

  PacketLine& line_;
  std::vector<Refusal> refusals_;
  const int64_t chunk_;
  const int64_t inline_;
  int64_t next_id_ = 1;
  // Small messages, per peer: bytes sent and known to have been read; bytes read and told.
  struct Small {
    int64_t sent = 0, known = 0, read = 0, told = 0;
  };
  std::vector<Small> small_;
  std::map<int64_t, Sending> sending_;  // by id
  Receivings receiving_;
  int64_t granted_ = 0;                         // bytes that may come, of all receives together
  std::deque<std::pair<int, int64_t>> hungry_;  // keys of receiving_ that wait for a grant
  std::list<Message*> receivers_;               // not matched yet, in the order they were posted
  std::list<Envelope> aside_;                   // not matched yet, in the order they came
};

}  // namespace tutti::comm

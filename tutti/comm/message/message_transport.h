// The transport for any network that can carry packets: implements rounds and messages over a MessageEngine.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/message/message_engine.h"
#include "tutti/comm/message/message_mail.h"
#include "tutti/comm/message/message_round.h"

namespace tutti::comm {

class MessageTransport : public Transport {
 public:
  // `group` is the name in messages, and so are the ranks' identities; without them a rank is known once it has spoken.
  MessageTransport(std::unique_ptr<MessageEngine> engine, std::string group, std::vector<PeerIdentity> identities = {});
  // Tells the peers that nothing more comes.
  ~MessageTransport() override;

  int rank() const override { return line_.rank(); }
  int size() const override { return line_.size(); }
  const TransportTraits& traits() const override { return traits_; }
  PeerIdentity peer(int rank) const override;
  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) override;
  bool advance() override;
  void post(Message& message) override;
  void advance_messages() override;
  void cancel(Message& message) override;
  void take_refusals(std::vector<Refusal>& into) override;
  void look_after(int peer, const CallRecord& call) override;
  bool pause(uint32_t attempt, std::chrono::microseconds limit) override;
  std::vector<int> late_ranks() const override;
  std::string last_seen(int rank) const override;
  void fail(std::string_view reason) override;
  std::string failure() const override;

 private:
  struct Failure {
    std::string reason;
    int64_t usage_round = 0;  // not 0: wrong usage in that round
  };
  struct Known {
    PeerIdentity identity;
    bool has_left = false;
  };

  void read_packets();
  void read(Packet&& packet);
  void look_after_peers();
  void end(std::string_view reason, int64_t usage_round, bool tell_peers);
  void throw_if_failed(bool in_a_round = false);

  std::unique_ptr<MessageEngine> engine_;
  const std::string group_;
  const TransportTraits traits_;
  mutable std::mutex turn_;  // whoever calls has it; failure() takes it to read packets when nobody does
  PacketLine line_;
  MessageRound round_;
  MessageMail mail_;
  std::vector<Known> known_;

  mutable std::mutex failure_mutex_;
  std::optional<Failure> failure_;
};

}  // namespace tutti::comm

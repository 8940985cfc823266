// The way out: packets of one rank to its peers, each peer greeted before the first.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tutti/comm/message/message_engine.h"
#include "tutti/comm/message/wire.h"

namespace tutti::comm {

class PacketLine {
 public:
  explicit PacketLine(MessageEngine& engine);

  int rank() const { return engine_.rank(); }
  int size() const { return engine_.size(); }
  // The thread whose turn it is.
  void send(int to, const PacketHead& head, std::initializer_list<ConstBlock> body = {});
  void recycle(Packet&& packet) { engine_.recycle(std::move(packet)); }
  // Any thread; greets nobody.
  void send_bare(int to, const PacketHead& head, ConstBlock body);

 private:
  MessageEngine& engine_;
  std::vector<bool> greeted_;
};

// A peer sent what no rank of this version sends: the group cannot go on. EnvironmentError text names the peer.
[[noreturn]] void throw_bad_packet(int from, std::string_view what);

}  // namespace tutti::comm

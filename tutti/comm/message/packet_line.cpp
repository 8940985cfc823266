#include "tutti/comm/message/packet_line.h"

#include <unistd.h>

#include "tutti/core/error.h"
#include "tutti/runtime/host.h"

namespace tutti::comm {
namespace {

ConstBlock block_of(const PacketHead& head) { return {reinterpret_cast<const std::byte*>(&head), sizeof head}; }

}  // namespace

PacketLine::PacketLine(MessageEngine& engine) : engine_(engine), greeted_(static_cast<size_t>(engine.size())) {}

void PacketLine::send(int to, const PacketHead& head, std::initializer_list<ConstBlock> body) {
  if (!greeted_[static_cast<size_t>(to)]) {
    greeted_[static_cast<size_t>(to)] = true;
    const std::string host = host_name();
    const int64_t length = static_cast<int64_t>(host.size());
    send_bare(
        to,
        {.kind = PacketKind::hello, .tag = static_cast<uint32_t>(getpid()), .number = kWireVersion, .bytes = length},
        {reinterpret_cast<const std::byte*>(host.data()), length});
  }
  ConstBlock parts[4] = {block_of(head)};
  size_t count = 1;
  for (const ConstBlock& block : body) {
    TUTTI_ASSERT(count < std::size(parts));
    parts[count++] = block;
  }
  engine_.send(to, {parts, count});
}

void PacketLine::send_bare(int to, const PacketHead& head, ConstBlock body) {
  const ConstBlock parts[] = {block_of(head), body};
  engine_.send(to, parts);
}

void throw_bad_packet(int from, std::string_view what) {
  throw EnvironmentError(fmt::format(
      "rank {} sent {}; all ranks must run the same version of Tutti, and nobody else may reach their ports", from,
      what));
}

}  // namespace tutti::comm

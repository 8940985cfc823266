#include "tests/comm/support/local_engine.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tutti/comm/message/wire.h"

namespace tutti::comm {

class LocalNetwork::Engine final : public MessageEngine {
 public:
  Engine(std::shared_ptr<LocalNetwork> net, int rank) : net_(std::move(net)), rank_(rank) {}
  const char* name() const override { return "local"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(net_->boxes_.size()); }

  void send(int to, std::span<const ConstBlock> parts) override {
    Packet packet;
    packet.from = rank_;
    for (const ConstBlock& part : parts) packet.bytes += part.bytes;
    if (packet.bytes > max_packet_bytes(size())) throw std::logic_error("a packet is larger than packets may be");
    packet.memory = allocate_packet(packet.bytes);
    std::byte* at = packet.memory.get();
    for (const ConstBlock& part : parts) {
      if (part.bytes > 0) std::memcpy(at, part.data, static_cast<size_t>(part.bytes));
      at += part.bytes;
    }
    const std::lock_guard lock(net_->mutex_);
    if (!net_->lost_[static_cast<size_t>(to)].empty() || !net_->lost_[static_cast<size_t>(rank_)].empty()) return;
    Box& box = net_->boxes_[static_cast<size_t>(to)];
    box.from.resize(net_->boxes_.size());
    box.bytes += packet.bytes;
    net_->most_bytes_ = std::max(net_->most_bytes_, box.bytes);
    ++net_->packets_;
    box.from[static_cast<size_t>(rank_)].push_back(std::move(packet));
    net_->news_.notify_all();
  }

  bool take(Packet& packet) override {
    const std::lock_guard lock(net_->mutex_);
    Box& box = net_->boxes_[static_cast<size_t>(rank_)];
    for (size_t i = 0; i < box.from.size(); ++i) {
      // Another sender first each time.
      std::deque<Packet>& queue = box.from[(box.turn + i) % box.from.size()];
      if (queue.empty()) continue;
      packet = std::move(queue.front());
      queue.pop_front();
      box.bytes -= packet.bytes;
      ++box.turn;
      return true;
    }
    return false;
  }

  void recycle(Packet&& packet) override { packet.memory.reset(); }

  void wait(std::chrono::microseconds limit) override {
    std::unique_lock lock(net_->mutex_);
    net_->news_.wait_for(lock, limit, [&] {
      for (const auto& queue : net_->boxes_[static_cast<size_t>(rank_)].from) {
        if (!queue.empty()) return true;
      }
      for (const std::string& why : net_->lost_) {
        if (!why.empty()) return true;
      }
      return false;
    });
  }

  std::string lost(int rank) const override {
    const std::lock_guard lock(net_->mutex_);
    return net_->lost_[static_cast<size_t>(rank)];
  }

 private:
  std::shared_ptr<LocalNetwork> net_;
  int rank_;
};

std::unique_ptr<MessageEngine> LocalNetwork::engine(int rank) {
  return std::make_unique<Engine>(shared_from_this(), rank);
}

void LocalNetwork::lose(int rank, std::string why) {
  const std::lock_guard lock(mutex_);
  lost_[static_cast<size_t>(rank)] = std::move(why);
  news_.notify_all();
}

void LocalNetwork::forge(int from, int to, std::vector<std::byte> bytes) {
  Packet packet;
  packet.from = from;
  packet.bytes = static_cast<int64_t>(bytes.size());
  packet.memory = allocate_packet(std::max<int64_t>(64, packet.bytes));
  std::memcpy(packet.memory.get(), bytes.data(), bytes.size());
  const std::lock_guard lock(mutex_);
  Box& box = boxes_[static_cast<size_t>(to)];
  box.from.resize(boxes_.size());
  box.bytes += packet.bytes;
  box.from[static_cast<size_t>(from)].push_back(std::move(packet));
  news_.notify_all();
}

int64_t LocalNetwork::packets() const {
  const std::lock_guard lock(mutex_);
  return packets_;
}

int64_t LocalNetwork::most_bytes() const {
  const std::lock_guard lock(mutex_);
  return most_bytes_;
}

}  // namespace tutti::comm

#include "bench/delayed_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "tutti/comm/transport_backend.h"
#include "tutti/comm/transports.h"

namespace tutti::bench {
namespace {

// What comes in over the link of a rank comes one after the other, whatever lanes it takes. Any thread.
class Line {
 public:
  explicit Line(const Link& link) : link_(link) {}
  // When a round has ended whose bytes begin to come now.
  comm::Clock::time_point due(int64_t bytes) {
    const std::chrono::nanoseconds transfer(
        link_.gbps > 0 ? static_cast<int64_t>(static_cast<double>(bytes) / link_.gbps) : 0);
    const std::lock_guard lock(mutex_);
    free_ = std::max(free_, comm::Clock::now()) + transfer;
    return free_ + link_.latency;
  }

 private:
  const Link link_;
  std::mutex mutex_;
  comm::Clock::time_point free_{};
};

class DelayedTransport final : public comm::Transport {
 public:
  DelayedTransport(std::unique_ptr<comm::Transport> inner, std::shared_ptr<Line> line)
      : inner_(std::move(inner)), line_(std::move(line)), traits_(inner_->traits()) {
    traits_.name = "delayed";
    traits_.waits_for_network = true;
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const comm::TransportTraits& traits() const override { return traits_; }
  comm::PeerIdentity peer(int rank) const override { return inner_->peer(rank); }

  void start(const comm::CallRecord& call, int64_t step, const comm::Exchange& exchange,
             comm::Receiver& receiver) override {
    inner_->start(call, step, exchange, receiver);
    int64_t received = 0;
    for (int p = 0; p < size(); ++p) received += p == rank() ? 0 : exchange.take_from(p);
    due_ = line_->due(received);
    arrived_ = false;
  }
  bool advance() override {
    if (!arrived_) arrived_ = inner_->advance();
    return arrived_ && comm::Clock::now() >= due_;
  }

  void post(comm::Message& message) override { inner_->post(message); }
  void advance_messages() override { inner_->advance_messages(); }
  void cancel(comm::Message& message) override { inner_->cancel(message); }
  void take_refusals(std::vector<comm::Refusal>& into) override { inner_->take_refusals(into); }
  void look_after(int peer, const comm::CallRecord& call) override { inner_->look_after(peer, call); }

  bool pause(uint32_t attempt, std::chrono::microseconds limit) override {
    if (!arrived_) return inner_->pause(attempt, limit);
    // Other threads of the rank, whom interrupt() does not announce here, wait at most this long.
    constexpr std::chrono::microseconds kLongest{200};
    std::this_thread::sleep_until(std::min(due_, comm::Clock::now() + std::min(limit, kLongest)));
    return true;
  }
  std::vector<int> late_ranks() const override { return inner_->late_ranks(); }
  std::string last_seen(int rank) const override { return inner_->last_seen(rank); }
  int64_t add_region(std::vector<std::byte*> bases, int64_t bytes) override {
    return inner_->add_region(std::move(bases), bytes);
  }
  void remove_region(int64_t region) override { inner_->remove_region(region); }
  void interrupt() override { inner_->interrupt(); }
  void fail(std::string_view reason) override { inner_->fail(reason); }
  void abandon() override {
    inner_->abandon();
    arrived_ = true;
    due_ = {};
  }
  std::string failure() const override { return inner_->failure(); }

 private:
  const std::unique_ptr<comm::Transport> inner_;
  const std::shared_ptr<Line> line_;
  comm::TransportTraits traits_;
  comm::Clock::time_point due_{};
  bool arrived_ = true;  // the round under way, apart from its delay
};

// `of`: with the transport that is delayed.
std::shared_ptr<comm::ProcessGroup> group_over(const comm::ProcessGroup& of, const std::string& key,
                                               const std::string& transport, const std::shared_ptr<Line>& line) {
  const comm::GroupSeat seat{.name = "delayed",
                             .key = key,
                             .rank = of.rank(),
                             .size = of.size(),
                             .world_ranks = of.world_ranks(),
                             .local_ranks = of.size(),
                             .store = of.store()};
  auto inner = comm::make_transport(transport, seat);
  auto delayed = std::make_shared<comm::ProcessGroup>(seat.name, seat.key, seat.rank, seat.world_ranks, seat.store);
  delayed->set_backend(DeviceKind::cpu,
                       std::make_shared<comm::TransportBackend>(
                           std::make_unique<DelayedTransport>(std::move(inner), line), comm::GroupLabel{seat.name}));
  return delayed;
}

}  // namespace

std::shared_ptr<comm::ProcessGroup> delayed_group(const comm::ProcessGroup& group, const Link& link) {
  const std::string transport = group.backend(DeviceKind::cpu).name();
  const auto line = std::make_shared<Line>(link);
  auto delayed = group_over(group, group.key() + "/delayed", transport, line);
  delayed->set_lane_maker([transport, line](comm::ProcessGroup& of, size_t n) {
    return group_over(of, fmt::format("{}/lane/{}", of.key(), n), transport, line);
  });
  return delayed;
}

}  // namespace tutti::bench

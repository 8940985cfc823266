// A group of which only its last call knows any more, and callbacks that make and drop groups, whoever moves the call.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "tutti/comm/fake/fake_transport.h"
#include "tutti/comm/process_group.h"
#include "tutti/comm/progress.h"
#include "tutti/comm/transport_backend.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/boundary.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::seconds kSoon{20};

// A group of two of which one is here: its calls end when `gate` is open, and `alive` falls when its transport has
// gone.
struct Gate {
  std::atomic<bool> is_open{false};
  std::atomic<int> alive{0};
};

class GatedTransport final : public Transport {
 public:
  explicit GatedTransport(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) { ++gate_->alive; }
  ~GatedTransport() override { --gate_->alive; }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const TransportTraits& traits() const override { return inner_.traits(); }
  PeerIdentity peer(int rank) const override { return inner_.peer(rank); }
  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) override {
    inner_.start(call, step, exchange, receiver);
  }
  bool advance() override { return gate_->is_open && inner_.advance(); }
  void post(Message& message) override { inner_.post(message); }
  void advance_messages() override { inner_.advance_messages(); }
  void cancel(Message& message) override { inner_.cancel(message); }
  bool pause(uint32_t, std::chrono::microseconds limit) override {
    std::this_thread::sleep_for(std::min(limit, std::chrono::microseconds(100)));
    return true;
  }
  std::vector<int> late_ranks() const override { return {}; }
  std::string last_seen(int rank) const override { return inner_.last_seen(rank); }
  void fail(std::string_view reason) override { inner_.fail(reason); }
  std::string failure() const override { return inner_.failure(); }

 private:
  const std::shared_ptr<Gate> gate_;
  FakeTransport inner_{0, 2};
};

std::shared_ptr<ProcessGroup> gated_group(const std::shared_ptr<Gate>& gate) {
  const auto group = std::make_shared<ProcessGroup>("gated", "gated", 0, std::vector<int>{0, 1}, nullptr);
  group->set_backend(DeviceKind::cpu,
                     std::make_shared<TransportBackend>(std::make_unique<GatedTransport>(gate), GroupLabel{"gated"}));
  return group;
}

// Runs `move` until nothing of the group is left.
bool goes_under(const Gate& gate, const std::function<void()>& move) {
  const auto limit = std::chrono::steady_clock::now() + kSoon;
  while (gate.alive > 0 && std::chrono::steady_clock::now() < limit) move();
  return gate.alive == 0;
}

// Nobody but the call itself holds the group any more.
TEST(DroppedGroup, GoesWithItsLastCallWhoeverEndsIt) {
  const Tensor t = ones({10});
  const auto open_gate = std::make_shared<Gate>();
  open_gate->is_open = true;
  const auto other = gated_group(open_gate);
  for (const std::string mover : {"ops", "thread", "waits"}) {
    std::optional<ProgressThread> thread;
    if (mover == "thread") thread.emplace();
    const auto gate = std::make_shared<Gate>();
    gated_group(gate)->all_reduce(t, {}, {.async = true});
    EXPECT_EQ(gate->alive, 1);
    gate->is_open = true;
    EXPECT_TRUE(goes_under(*gate, [&] {
      if (mover == "ops") add(t, t);
      if (mover == "thread") std::this_thread::sleep_for(std::chrono::milliseconds(1));
      // A wait looks after other groups only while it has to wait.
      if (mover == "waits") {
        open_gate->is_open = false;
        const Work work = other->all_reduce(t, {}, {.async = true});
        work.wait_for(std::chrono::milliseconds(5));
        open_gate->is_open = true;
        work.wait();
      }
    })) << mover;
    EXPECT_FALSE(Boundary::is_wanted()) << mover;
  }
}

// A callback that is called while the groups of the rank are looked after changes their list.
TEST(DroppedGroup, CallbacksMakeAndDropGroups) {
  const Tensor t = ones({10});
  for (const bool by_thread : {false, true}) {
    std::optional<ProgressThread> thread;
    if (by_thread) thread.emplace();
    const auto gate = std::make_shared<Gate>(), open = std::make_shared<Gate>();
    open->is_open = true;
    std::vector<std::shared_ptr<ProcessGroup>> before{gated_group(open)}, group{gated_group(gate)},
        behind{gated_group(open)};
    std::atomic<bool> called{false};
    Work work = group[0]->all_reduce(t, {}, {.async = true});
    work.then([&] {
      before.clear();
      behind.clear();
      group.clear();
      gated_group(open)->all_reduce(t);
      called = true;
    });
    work = {};
    gate->is_open = true;
    EXPECT_TRUE(goes_under(*gate, [&] {
      if (by_thread) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      else add(t, t);
    }));
    EXPECT_TRUE(called);
    EXPECT_EQ(open->alive, 0);
  }
}

}  // namespace
}  // namespace tutti::comm

#include "tutti/comm/fake/fake_transport.h"

#include <gtest/gtest.h>

#include "tests/comm/support/transport_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

TEST(FakeTransport, CountsCallsRoundsAndBytesPerKind) {
  FakeTransport t(3, 1000);
  const auto memory = bytes_for(0, 0, 100);
  const ConstBlock offer{memory.data(), 100};
  const int64_t take = 100;
  const Exchange exchange{.offers = {&offer, 1}, .takes = {&take, 1}};
  CallRecord call;
  call.kind = CollectiveKind::all_reduce;
  for (int64_t step = 0; step < 2; ++step) {
    call.sequence = 1;
    // The promise of equal parts is for those whose data move.
    class Own final : public Receiver {
     public:
      void receive(std::span<const Arrival> from) override {
        for (size_t p = 0; p < from.size(); ++p) EXPECT_EQ(from[p].bytes, p == 3 ? 100 : 0);
      }
    } own;
    t.start(call, step, exchange, own);
    EXPECT_TRUE(t.advance());
  }
  const CallCount count = t.count(CollectiveKind::all_reduce);
  EXPECT_EQ(count.calls, 1);
  EXPECT_EQ(count.rounds, 2);
  EXPECT_EQ(count.sent_bytes, 2 * 999 * 100);
  EXPECT_EQ(count.received_bytes, 2 * 999 * 100);
  EXPECT_EQ(t.count(CollectiveKind::barrier).calls, 0);
  EXPECT_EQ(t.total().rounds, 2);
  EXPECT_FALSE(t.traits().moves_data);
  t.reset_counts();
  EXPECT_EQ(t.total().calls, 0);
}

TEST(FakeTransport, MessagesFinishAtOnce) {
  FakeTransport t(0, 4);
  std::byte memory[8];
  Message send{.is_send = true, .peer = 2, .data = memory, .bytes = 8};
  Message recv{.is_send = false, .peer = -1, .data = memory, .bytes = 8};
  t.post(send);
  t.post(recv);
  EXPECT_TRUE(send.finished);
  EXPECT_TRUE(recv.finished);
  EXPECT_EQ(recv.peer, 1);
  EXPECT_EQ(t.count(CollectiveKind::send).sent_bytes, 8);
  EXPECT_EQ(t.count(CollectiveKind::recv).received_bytes, 8);
}

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(FakeTransport, RefusesWhatNoTransportCouldCarryOut) {
  FakeTransport t(1, 4);
  const std::byte memory[8] = {};
  class Nothing final : public Receiver {
    void receive(std::span<const Arrival>) override {}
  } nothing;
  const auto start = [&](std::vector<ConstBlock> offers, std::vector<int64_t> takes, int root = -1) {
    CallRecord call = tensor_call(7, 8);
    call.root = root;
    const Exchange exchange{.offers = offers, .takes = takes};
    return message_of([&] { t.start(call, 0, exchange, nothing); });
  };
  EXPECT_SAYS(start({{memory, 8}, {memory, 8}}, {8}), "all_gather_single #7 on rank 1",
              "2 offers; expected 1 or one for each of 4 ranks");
  EXPECT_SAYS(start({{memory, 8}}, {}), "0 sizes to take");
  EXPECT_SAYS(start({{memory, -1}}, {8}), "has -1 bytes");
  EXPECT_SAYS(start({{nullptr, 8}}, {8}), "has 8 bytes but no memory");
  EXPECT_SAYS(start({{memory, 8}}, {-2}), "-2 bytes to take");
  EXPECT_SAYS(start({{memory, 8}}, {4}), "offers itself 8 bytes and takes 4");
  EXPECT_SAYS(start({{memory, 8}}, {8}, 4), "root 4 of a group of 4");
  EXPECT_SAYS(message_of([&] {
                Message m{.is_send = true, .peer = 1};
                t.post(m);
              }),
              "rank 1 names itself");
  EXPECT_SAYS(message_of([&] {
                Message m{.is_send = true, .peer = 4};
                t.post(m);
              }),
              "peer 4 is no rank");
  EXPECT_SAYS(message_of([] { FakeTransport bad(4, 4); }), "rank 4 of 4 ranks");
}

TEST(FakeTransport, FailedGroupRefusesCalls) {
  FakeTransport t(0, 2);
  t.fail("first");
  t.fail("second");
  EXPECT_EQ(t.failure(), "first");
  EXPECT_THROW(t.advance_messages(), PeerError);
}

}  // namespace
}  // namespace tutti::comm

#include "tutti/comm/message/message_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/comm/support/local_engine.h"
#include "tests/comm/support/transport_ranks.h"
#include "tutti/comm/message/wire.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

MakeTransport over(const std::shared_ptr<LocalNetwork>& net) {
  return [net](int rank) { return std::make_unique<MessageTransport>(net->engine(rank), "test"); };
}
std::shared_ptr<LocalNetwork> network(int ranks) { return std::make_shared<LocalNetwork>(ranks); }

// One rank's call in a round where every rank offers one block of `bytes`.
void one_round(Transport& transport, const CallRecord& call, int64_t bytes = 4) {
  exchange_one_block(transport, call, bytes);
}

TEST(MessageTransport, RoundsOfAnySizesBringTheRightBytes) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    expect_on_ranks(ranks, over(network(ranks)),
                    [&](Transport& t) { check_rounds(t, 100 + static_cast<uint64_t>(ranks), 40, 700'000); });
  }
}

TEST(MessageTransport, SmallCollectiveIsOnePacketPerPeer) {
  const int ranks = 4;
  const auto net = network(ranks);
  const int greetings = 2 * ranks * (ranks - 1);  // hello and leave
  expect_on_ranks(ranks, over(net), [&](Transport& t) {
    for (int64_t i = 1; i <= 10; ++i) one_round(t, tensor_call(i, 8), 8);
  });
  EXPECT_EQ(net->packets(), greetings + 10 * ranks * (ranks - 1));
}

TEST(MessageTransport, LargeOffersWaitAtTheSenderNotAtTheReceiver) {
  const int ranks = 3;
  const auto net = network(ranks);
  // Rank 0 begins late with taking: nothing but heads may come before.
  expect_on_ranks(ranks, over(net), [&](Transport& t) {
    one_round(t, barrier_call(1), 0);
    if (t.rank() == 0) std::this_thread::sleep_for(50ms);
    one_round(t, tensor_call(2, 40 << 20), 40 << 20);
  });
  EXPECT_LT(net->most_bytes(), kWindowBytes + (1 << 20));
}

// ---- mismatches -----------------------------------------------------------------------------------------------------

struct Difference {
  const char* field;
  std::function<void(CallRecord&)> change;
};

TEST(MessageTransport, EveryDifferingFieldIsNamedOnAllRanksAndTheGroupGoesOn) {
  const Difference differences[] = {
      {"operations", [](CallRecord& r) { r.kind = CollectiveKind::broadcast; }},
      {"sequence numbers", [](CallRecord& r) { r.sequence += 1; }},
      {"reduce ops", [](CallRecord& r) { r.reduce = ReduceKind::max; }},
      {"roots", [](CallRecord& r) { r.root = 1; }},
      {"tags", [](CallRecord& r) { r.tag = 5; }},
      {"numbers of tensors", [](CallRecord& r) { r.tensors = 2; }},
      {"dtypes", [](CallRecord& r) { r.dtype = DType::f64; }},
      {"kinds of sizes", [](CallRecord& r) { r.same_sizes = false; }},
      {"numbers of dims", [](CallRecord& r) { r.describe_tensor(DType::f32, Extents{4, 1}); }},
      {"shapes", [](CallRecord& r) { r.describe_tensor(DType::f32, Extents{5}); }},
      {"plans (agreement keys)", [](CallRecord& r) { r.splits = 77; }},
  };
  for (const int odd_rank : {0, 1, 2}) {
    const auto net = network(3);
    expect_on_ranks(3, over(net), [&](Transport& t) {
      CallRecord call;
      call.kind = CollectiveKind::all_reduce;
      call.describe_tensor(DType::f32, Extents{4});
      for (const Difference& d : differences) {
        ++call.sequence;
        CallRecord mine = call;
        if (t.rank() == odd_rank) d.change(mine);
        try {
          one_round(t, mine, t.rank() == odd_rank ? 100'000 : 16);
          throw std::logic_error(std::string("no error for differing ") + d.field);
        } catch (const UsageError& error) {
          EXPECT_SAYS(error.what(), d.field, "group 'test'", "rank 0 called",
                      odd_rank == 2 ? "rank 2 called" : "rank 1 called");
        }
        ++call.sequence;
        one_round(t, call, 16);  // all is well again
      }
    });
  }
}

TEST(MessageTransport, UnevenSizesThatDoNotFitAreNamedOnAllRanksAndTheGroupGoesOn) {
  expect_on_ranks(3, over(network(3)), [](Transport& t) {
    for (const int64_t wrong : {0, 7, 1'000'000}) {
      // Rank 1 expects `wrong` bytes of rank 2, which sends 64.
      std::vector<std::byte> memory(64);
      const ConstBlock offer{memory.data(), 64};
      std::vector<int64_t> takes(3, 64);
      if (t.rank() == 1) takes[2] = wrong;
      KeepingReceiver receiver(takes);
      const CallRecord call = uneven_call(wrong + 1);
      const Exchange exchange{.offers = {&offer, 1}, .takes = takes};
      try {
        t.start(call, 0, exchange, receiver);
        finish_round(t);
        throw std::logic_error("no error");
      } catch (const UsageError& error) {
        EXPECT_SAYS(error.what(), fmt::format("rank 2 sends 64 bytes to rank 1, which expects {}", wrong));
      }
      EXPECT_EQ(receiver.calls, 0);
      one_round(t, barrier_call(wrong + 2), 0);
    }
  });
}

TEST(MessageTransport, SizesThatDoNotFollowFromTheRecordEndTheGroupOnAllRanks) {
  const auto errors = on_ranks(4, over(network(4)), [](Transport& t) {
    std::vector<std::byte> memory(64);
    const ConstBlock offer{memory.data(), 64};
    std::vector<int64_t> takes(4, 64);
    if (t.rank() == 1) takes[2] = 65;
    KeepingReceiver receiver(takes);
    const CallRecord call = tensor_call(1, 64);
    const Exchange exchange{.offers = {&offer, 1}, .takes = takes};
    try {
      t.start(call, 0, exchange, receiver);
      finish_round(t);
    } catch (const UsageError&) {
    }
    one_round(t, barrier_call(2), 0);
  });
  for (const std::string& error : errors) {
    EXPECT_SAYS(error, "PeerError", "rank 2 sends 64 bytes to rank 1, which expects 65");
  }
}

TEST(MessageTransport, ExchangesThatAreNotWholeAreRefused) {
  const auto net = network(2);
  const auto errors = on_ranks(1, over(net), [](Transport& t) {
    const int64_t takes[] = {4, 4, 4};
    const std::byte memory[4] = {};
    const ConstBlock offer{memory, 4};
    KeepingReceiver receiver({4, 4});
    t.start(tensor_call(1, 4), 0, {.offers = {&offer, 1}, .takes = takes}, receiver);
  });
  EXPECT_SAYS(errors[0], "3 sizes to take; expected 1 or one for each of 2 ranks");
}

// ---- messages -------------------------------------------------------------------------------------------------------

TEST(MessageTransport, MessagesKeepTheirOrderPerTag) {
  for (const int ranks : {2, 3, 5}) {
    expect_on_ranks(ranks, over(network(ranks)), [](Transport& t) {
      for (uint64_t seed = 1; seed <= 5; ++seed) check_messages(t, seed);
      one_round(t, barrier_call(1), 0);
    });
  }
}

Message message(bool is_send, int peer, uint32_t tag, std::vector<std::byte>& memory) {
  Message m;
  m.is_send = is_send;
  m.peer = peer;
  m.tag = tag;
  m.data = memory.data();
  m.bytes = static_cast<int64_t>(memory.size());
  return m;
}

TEST(MessageTransport, ReceivingFromAnybodyTellsWhoSent) {
  expect_on_ranks(4, over(network(4)), [](Transport& t) {
    for (const int64_t bytes : {5, 200'000}) {
      if (t.rank() != 0) {
        auto mine = bytes_for(t.rank(), 0, bytes);
        Message m = message(true, 0, 9, mine);
        t.post(m);
        finish_messages(t, {&m});
      } else {
        std::vector<int> seen;
        for (int i = 0; i < 3; ++i) {
          std::vector<std::byte> memory(static_cast<size_t>(bytes));
          Message m = message(false, -1, 9, memory);
          t.post(m);
          finish_messages(t, {&m});
          EXPECT_EQ(m.error, "");
          EXPECT_EQ(memory, bytes_for(m.peer, 0, bytes));
          seen.push_back(m.peer);
        }
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
      }
      one_round(t, barrier_call(bytes), 0);
    }
  });
}

TEST(MessageTransport, SendersGoOnAheadOfReceiversThatReadLate) {
  // Far more than may wait unread: the rest waits at the sender.
  const auto net = network(2);
  expect_on_ranks(2, over(net), [](Transport& t) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::unique_ptr<Message>> messages;
    std::vector<Message*> all;
    for (int i = 0; i < 3000; ++i) {
      memory.push_back(t.rank() == 0 ? bytes_for(0, i, 8000) : std::vector<std::byte>(8000));
      messages.push_back(std::make_unique<Message>(message(t.rank() == 0, 1 - t.rank(), 1, memory.back())));
      all.push_back(messages.back().get());
    }
    if (t.rank() == 1) std::this_thread::sleep_for(30ms);
    for (Message* m : all) t.post(*m);
    finish_messages(t, all);
    for (int i = 0; i < 3000; ++i) EXPECT_EQ(memory[static_cast<size_t>(i)], bytes_for(0, i, 8000));
    one_round(t, barrier_call(1), 0);
  });
  EXPECT_LT(net->most_bytes(), kWindowBytes + (1 << 20));
}

TEST(MessageTransport, MessageOfAnotherSizeFailsAloneAndSaysSo) {
  for (const int64_t bytes : {10, 100'000}) {
    expect_on_ranks(2, over(network(2)), [&](Transport& t) {
      std::vector<std::byte> memory(static_cast<size_t>(bytes + t.rank()));
      Message m = message(t.rank() == 0, 1 - t.rank(), 3, memory);
      t.post(m);
      finish_messages(t, {&m});
      const std::string refusal = fmt::format(
          "rank 1 refuses the message with tag 3 from rank 0: the lengths differ: rank 0 sends {} elements of u8, rank "
          "1 receives {} of u8",
          bytes, bytes + 1);
      // A small one has left its sender before it is looked at.
      EXPECT_EQ(m.error, t.rank() == 0 && bytes == 10 ? "" : refusal);
      one_round(t, barrier_call(1), 0);
    });
  }
}

TEST(MessageTransport, CancelledMessagesAreForgottenOnBothSides) {
  expect_on_ranks(2, over(network(2)), [](Transport& t) {
    const int64_t large = 3 << 20;
    if (t.rank() == 0) {
      // A send that nobody wants yet is withdrawn; the next with the same tag takes its place.
      {
        auto gone = bytes_for(0, 1, large);
        Message m = message(true, 1, 4, gone);
        t.post(m);
        t.cancel(m);
        gone.assign(gone.size(), std::byte{0});
      }
      auto kept = bytes_for(0, 2, large);
      Message m = message(true, 1, 4, kept);
      t.post(m);
      one_round(t, barrier_call(1), 0);
      finish_messages(t, {&m});
      // A send whose receive is cancelled ends well.
      auto unwanted = bytes_for(0, 3, large);
      Message n = message(true, 1, 5, unwanted);
      t.post(n);
      finish_messages(t, {&n});
      EXPECT_EQ(n.error, "");
    } else {
      one_round(t, barrier_call(1), 0);
      std::vector<std::byte> memory(static_cast<size_t>(large));
      Message m = message(false, 0, 4, memory);
      t.post(m);
      finish_messages(t, {&m});
      EXPECT_EQ(m.error, "");
      EXPECT_EQ(memory, bytes_for(0, 2, large));
      std::vector<std::byte> other(static_cast<size_t>(large));
      Message n = message(false, 0, 5, other);
      t.post(n);
      while (n.done_bytes == 0) t.advance_messages();
      t.cancel(n);
      other.clear();
      other.shrink_to_fit();
    }
    one_round(t, barrier_call(2), 0);
    // A receive that has not been matched.
    std::vector<std::byte> memory(8);
    Message m = message(false, 1 - t.rank(), 6, memory);
    t.post(m);
    t.cancel(m);
    one_round(t, barrier_call(3), 0);
  });
}

TEST(MessageTransport, MessagesToOneselfOrNobodyAreRefused) {
  const auto errors = on_ranks(1, over(network(2)), [](Transport& t) {
    std::vector<std::byte> memory(8);
    Message self = message(true, 0, 0, memory);
    EXPECT_THROW(t.post(self), UsageError);
    Message nobody = message(true, 2, 0, memory);
    t.post(nobody);
  });
  EXPECT_SAYS(errors[0], "peer 2 is no rank of a group of 2");
}

// ---- failing --------------------------------------------------------------------------------------------------------

TEST(MessageTransport, FailReleasesWhoeverWaits) {
  const auto errors = on_ranks(3, over(network(3)), [](Transport& t) {
    if (t.rank() == 2) {
      std::this_thread::sleep_for(30ms);
      t.fail("out of paper");
    }
    one_round(t, barrier_call(1), 0);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "PeerError: out of paper");
}

TEST(MessageTransport, FailWorksFromAnotherThreadWhileWaiting) {
  const auto errors = on_ranks(2, over(network(2)), [](Transport& t) {
    std::thread other;
    if (t.rank() == 0) {
      other = std::thread([&] {
        std::this_thread::sleep_for(30ms);
        t.fail("stopped by the user");
      });
    }
    std::string error;
    try {
      if (t.rank() == 0) {
        one_round(t, barrier_call(1), 0);
      } else {
        std::vector<std::byte> memory(8);
        Message m = message(false, 0, 1, memory);
        t.post(m);
        finish_messages(t, {&m});
      }
    } catch (const PeerError& e) {
      error = e.what();
    }
    if (other.joinable()) other.join();
    EXPECT_EQ(error, "stopped by the user");
    EXPECT_EQ(t.failure(), "stopped by the user");
    throw PeerError(error);
  });
  EXPECT_SAYS(errors[1], "stopped by the user");
}

TEST(MessageTransport, FailureIsKnownToWhoeverAsks) {
  expect_on_ranks(2, over(network(2)), [](Transport& t) {
    one_round(t, barrier_call(1), 0);
    if (t.rank() == 0) t.fail("enough");
    const auto end = Clock::now() + 10s;
    while (t.failure() != "enough" && Clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(t.failure(), "enough");
  });
}

TEST(MessageTransport, LostPeerIsNamedToAll) {
  const auto net = network(3);
  const auto errors = on_ranks(3, over(net), [&](Transport& t) {
    one_round(t, barrier_call(1), 0);
    if (t.rank() == 1) {
      net->lose(1, "its connection was closed");
      return;
    }
    for (int64_t i = 2; i < 1000; ++i) one_round(t, tensor_call(i, 100'000), 100'000);
  });
  for (const int r : {0, 2}) {
    EXPECT_SAYS(errors[static_cast<size_t>(r)], "PeerError: rank 1 (pid ", "its connection was closed while rank ",
                "all_gather_single #", "group 'test'");
  }
}

TEST(MessageTransport, PeerThatLeavesAfterItsPartDoesNoHarm) {
  expect_on_ranks(3, over(network(3)), [](Transport& t) {
    one_round(t, tensor_call(1, 300'000), 300'000);
    if (t.rank() == 1) return;  // leaves
    auto mine = bytes_for(t.rank(), 0, 100'000);
    std::vector<std::byte> theirs(100'000);
    Message out = message(true, 2 - t.rank(), 1, mine), in = message(false, -1, 1, theirs);
    t.post(out);
    t.post(in);
    finish_messages(t, {&out, &in});
    EXPECT_EQ(theirs, bytes_for(2 - t.rank(), 0, 100'000));
  });
}

TEST(MessageTransport, WaitingForSomeoneWhoLeftFails) {
  const auto errors = on_ranks(2, over(network(2)), [](Transport& t) {
    one_round(t, barrier_call(1), 0);
    if (t.rank() == 1) return;
    one_round(t, barrier_call(2), 0);
  });
  EXPECT_SAYS(errors[0], "PeerError: rank 1 (pid ", "left the group while rank 0 waited for it in barrier #2");
}

TEST(MessageTransport, LateRanksAndTheirLastCallsAreKnown) {
  std::atomic<bool> looked = false;
  expect_on_ranks(3, over(network(3)), [&](Transport& t) {
    one_round(t, tensor_call(1, 8), 8);
    if (t.rank() == 0) {
      const CallRecord call = barrier_call(2);
      const ConstBlock nothing;
      const int64_t zero = 0;
      KeepingReceiver receiver({0, 0, 0});
      const Exchange whole{.offers = {&nothing, 1}, .takes = {&zero, 1}};
      t.start(call, 0, whole, receiver);
      const auto end = Clock::now() + 10s;
      while (t.late_ranks() != std::vector<int>{2} && Clock::now() < end) t.advance();
      EXPECT_EQ(t.late_ranks(), std::vector<int>{2});
      EXPECT_EQ(t.last_seen(2), "its last call was #1, all_gather_single(u8 [8])");
      EXPECT_EQ(t.last_seen(1), "its last call was #2, barrier()");
      EXPECT_EQ(t.peer(2).pid, getpid());
      looked = true;
      finish_round(t);
    } else {
      while (t.rank() == 2 && !looked) std::this_thread::yield();
      one_round(t, barrier_call(2), 0);
    }
  });
}

TEST(MessageTransport, NonsenseFromTheNetworkEndsTheGroupCleanly) {
  std::vector<std::vector<std::byte>> packets;
  packets.push_back(std::vector<std::byte>(3));
  for (uint32_t kind = 0; kind < kNumPacketKinds + 2; ++kind) {
    for (const int64_t number : {int64_t{-1}, int64_t{1}, int64_t{99}}) {
      for (const size_t body : {size_t{0}, size_t{64}, size_t{5000}}) {
        PacketHead head{
            .kind = static_cast<PacketKind>(kind), .number = number, .offset = 1 << 20, .bytes = int64_t{1} << 60};
        std::vector<std::byte> bytes(sizeof head + body, std::byte{0xff});
        std::memcpy(bytes.data(), &head, sizeof head);
        packets.push_back(std::move(bytes));
      }
    }
  }
  for (const auto& packet : packets) {
    const auto net = network(2);
    const auto transport = std::make_unique<MessageTransport>(net->engine(0), "test");
    net->forge(1, 0, packet);
    try {
      transport->advance_messages();
    } catch (const PeerError&) {
    }
  }
}

}  // namespace
}  // namespace tutti::comm

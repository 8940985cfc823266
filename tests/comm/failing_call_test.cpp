// A call that goes wrong on one rank alone: a kernel that cannot be compiled, no memory. The group ends on all ranks,
// and all know why.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/local_engine.h"
#include "tests/comm/support/transport_ranks.h"
#include "tutti/comm/call_queue.h"
#include "tutti/comm/hier/hier_transport.h"
#include "tutti/comm/message/message_transport.h"
#include "tutti/comm/shm/shm_transport.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

constexpr int kBad = 1;

enum class Moment { begin, arrival, between, second_arrival, never };

// Two rounds of `count` values to all; on one rank it throws at `moment`.
class FailingGather final : public Collective {
 public:
  FailingGather(int rank, int ranks, int64_t count, Moment moment)
      : moment_(moment),
        bad_(rank == kBad),
        mine_(static_cast<size_t>(count)),
        takes_(static_cast<size_t>(ranks), count) {
    record.kind = CollectiveKind::all_gather_single;
    record.describe_tensor(DType::u8, Extents{count});
    offer_ = {mine_.data(), count};
  }
  bool next(Exchange& exchange) override {
    if (step_ == 0) fail_at(Moment::begin);
    if (step_ == 1) fail_at(Moment::between);
    if (++step_ > 2) return false;
    exchange.offers = {&offer_, 1};
    exchange.takes = takes_;
    return true;
  }
  void receive(std::span<const Arrival>) override { fail_at(step_ == 1 ? Moment::arrival : Moment::second_arrival); }

 private:
  void fail_at(Moment moment) const {
    if (bad_ && moment == moment_) throw EnvironmentError("no compiler here");
  }
  const Moment moment_;
  const bool bad_;
  int step_ = 0;
  std::vector<std::byte> mine_;
  ConstBlock offer_;
  std::vector<int64_t> takes_;
};

// What `call` throws: "PeerError: text".
std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
    return "nothing";
  } catch (const PeerError& error) {
    return std::string("PeerError: ") + error.what();
  } catch (const EnvironmentError& error) {
    return std::string("EnvironmentError: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("other: ") + error.what();
  }
}

// The rank on which the call goes wrong throws its own error; the others are told, and so is whoever calls later.
std::string why_not_as_promised(Transport* transport, Moment moment, int64_t count) {
  CallQueue queue(std::unique_ptr<Transport>(transport), {.name = "test"});
  const int me = transport->rank(), ranks = transport->size();
  const auto gather = [&](Moment when) {
    return thrown_by([&] {
      FailingGather collective(me, ranks, count, when);
      Call call(10s);
      call.collective = &collective;
      queue.run(call);
    });
  };
  const auto is_told = [&](const std::string& text) {
    for (const std::string& part :
         {std::string("PeerError: rank 1 (pid "),
          fmt::format("failed in collective #1 of group 'test', all_gather_single(u8 [{}])", count),
          std::string(": no compiler here")}) {
      if (text.find(part) == std::string::npos) return false;
    }
    return true;
  };
  const std::string first = gather(moment);
  // In the last round a rank may have got all that it needs.
  const bool may_finish = moment == Moment::second_arrival && first == "nothing";
  if (me == kBad ? first != "EnvironmentError: no compiler here" : !may_finish && !is_told(first)) return first;
  for (int i = 0; i < 3; ++i) {
    if (const std::string later = gather(Moment::never); !is_told(later)) return "later: " + later;
  }
  return "";
}

// In a line, in parts, and in many pieces.
constexpr int64_t kCounts[] = {8, 30'000, 900'000};

// Every moment and size, each time over a new network.
void check_threads(int ranks, const std::function<MakeTransport()>& network) {
  for (int moment = 0; moment < static_cast<int>(Moment::never); ++moment) {
    for (const int64_t count : kCounts) {
      const MakeTransport make = network();
      std::vector<std::string> why(static_cast<size_t>(ranks));
      std::vector<std::jthread> threads;
      for (int r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
          why[static_cast<size_t>(r)] = why_not_as_promised(make(r).release(), static_cast<Moment>(moment), count);
        });
      }
      threads.clear();
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(why[static_cast<size_t>(r)], "")
            << "rank " << r << ", moment " << moment << ", " << count << " bytes";
    }
  }
}

std::shared_ptr<Segment> segment_of_threads(int ranks) {
  auto segment = Segment::create(ranks, 4096);
  for (int r = 0; r < ranks; ++r) segment->area(r).pid.store(getpid());
  return segment;
}

TEST(FailingCall, EndsTheGroupBetweenThreads) {
  check_threads(3, [] {
    return [segment = segment_of_threads(3)](int rank) {
      return std::make_unique<ShmTransport>(segment, rank, ShmOptions{.group = "test", .one_address_space = true});
    };
  });
}

TEST(FailingCall, EndsTheGroupOverMessages) {
  check_threads(3, [] {
    return [network = std::make_shared<LocalNetwork>(3)](int rank) {
      return std::make_unique<MessageTransport>(network->engine(rank), "test");
    };
  });
}

TEST(FailingCall, EndsTheGroupOfSeveralHosts) {
  check_threads(3, [] {
    return [inside = std::make_shared<LocalNetwork>(2), alone = std::make_shared<LocalNetwork>(1),
            all = std::make_shared<LocalNetwork>(3)](int rank) {
      auto inner = std::make_unique<MessageTransport>(rank < 2 ? inside->engine(rank) : alone->engine(0), "inside");
      return std::make_unique<HierTransport>(
          std::move(inner), std::make_unique<MessageTransport>(all->engine(rank), "test"), std::array{0, 0, 1}, "test");
    };
  });
}

TEST(FailingCall, EndsTheGroupBetweenProcesses) {
  for (int moment = 0; moment < static_cast<int>(Moment::never); ++moment) {
    for (const int64_t count : kCounts) {
      const auto segment = Segment::create(3, 4096);
      const auto results = fork_processes(
          3,
          [&](int rank) {
            const std::string why = why_not_as_promised(new ShmTransport(segment, rank, {.group = "test"}),
                                                        static_cast<Moment>(moment), count);
            TUTTI_CHECK(why.empty(), "{}", why);
          },
          {.limit = std::chrono::seconds(30)}, [&](int rank, pid_t pid) { segment->area(rank).pid.store(pid); });
      for (size_t r = 0; r < results.size(); ++r) {
        EXPECT_TRUE(results[r].succeeded())
            << "rank " << r << ", moment " << moment << ", " << count << " bytes: " << results[r].error;
      }
    }
  }
}

// A message has nobody who waits for the receiver to go on: only this one fails.
TEST(FailingCall, AMessageThatCannotBePutInItsPlaceFailsAlone) {
  const auto network = std::make_shared<LocalNetwork>(2);
  std::vector<std::jthread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      CallQueue queue(std::make_unique<MessageTransport>(network->engine(r), "test"), {.name = "test"});
      for (int i = 0; i < 2; ++i) {
        std::byte value{static_cast<unsigned char>(r == 0 ? 40 + i : 0)};
        const auto call = std::make_shared<MessageCall>(10s);
        call->record.kind = r == 0 ? CollectiveKind::send : CollectiveKind::recv;
        call->messages.push_back({.is_send = r == 0, .peer = 1 - r, .data = &value, .bytes = 1, .call = &call->record});
        const bool fails = r == 1 && i == 0;
        if (fails) call->finish = [] { throw EnvironmentError("no compiler here"); };
        queue.submit(call);
        EXPECT_TRUE(queue.wait(*call, 10s));
        EXPECT_EQ(call->failure != nullptr, fails);
        EXPECT_EQ(static_cast<int>(value), 40 + i);
      }
      EXPECT_EQ(queue.transport().failure(), "");
    });
  }
}

}  // namespace
}  // namespace tutti::comm

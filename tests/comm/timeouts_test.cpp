// Timeouts at both ends: as long as a number can say, and none at all.
#include <gtest/gtest.h>

#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kEndless = std::chrono::milliseconds::max();

// Rank 1 comes only after rank 0 has looked at its deadline and found that there is time.
void check_patience(ProcessGroup& group, const char* go, const std::function<Work()>& call) {
  if (group.rank() == 0) {
    const Work work = call();
    EXPECT_FALSE(work.wait_for(30ms)) << go;
    group.store()->set(go, "1");
    EXPECT_TRUE(work.wait_for(kEndless)) << go;
  } else {
    group.store()->get(go, kEndless);
    call().wait();
  }
  EXPECT_TRUE(group.health().ok) << group.health().failure;
}

TEST(Timeouts, TheLongestThereIsNeverPasses) {
  run_ranks(2, [](ProcessGroup& group) {
    const CallOptions options{.async = true, .timeout = kEndless};
    const Tensor t = Tensor::of<int64_t>({1});
    check_patience(group, "collective", [&] { return group.all_reduce(t, {}, options); });
    check_patience(group, "message",
                   [&] { return group.rank() == 0 ? group.recv(t, 1, 0, options) : group.send(t, 0, 0, options); });
    check_patience(group, "several", [&] { return all_of({group.barrier(options), group.barrier(options)}); });
    group.set_timeout(kEndless);
    check_patience(group, "of the group", [&] { return group.barrier({.async = true}); });
    for (const bool all : {false, true}) group.monitored_barrier(kEndless, all);
    const auto again = group.split({1, 0}, {.timeout = kEndless});
    again->barrier();
    const symm::SymmGroup symm = symm_group(group);
    const Tensor shared = symm::empty_symm({8}, DType::f32, kCpu, {.group = symm});
    symm::rendezvous(shared, symm, kEndless)->barrier(0, kEndless);
    group.barrier();
  });
}

TEST(Timeouts, NoneAtAllIsRefused) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto complaint = [](const std::function<void()>& call) {
      try {
        call();
        return std::string("nothing");
      } catch (const UsageError& error) {
        return std::string(error.what());
      }
    };
    const Tensor t = Tensor::of<int64_t>({1});
    for (const auto timeout : {0ms, -1ms, std::chrono::milliseconds::min()}) {
      const std::string end = fmt::format("a timeout of {} ms; expected more than 0", timeout.count());
      EXPECT_EQ(complaint([&] { group.set_timeout(timeout); }), "set_timeout of group '0': " + end);
      EXPECT_EQ(complaint([&] { group.all_reduce(t, {}, {.timeout = timeout}); }), "a call: " + end);
      EXPECT_EQ(complaint([&] { group.monitored_barrier(timeout); }), "monitored_barrier of group '0': " + end);
      EXPECT_EQ(complaint([&] { group.split({0, 1}, {.name = "part", .timeout = timeout}); }), "group 'part': " + end);
    }
    group.barrier();
  });
}

TEST(Timeouts, ARendezvousInVainCallsTheGroupByItsName) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto pair = group.split({0, 1}, {.name = "pair"});
    const symm::SymmGroup symm = symm_group(*pair);
    const Tensor shared = symm::empty_symm({8}, DType::f32, kCpu, {.group = symm});
    if (group.rank() == 0) {
      try {
        symm::rendezvous(shared, symm, 20ms);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const TimeoutError& error) {
        EXPECT_STREQ(
            error.what(),
            "symmetric memory rendezvous #1 of group 'pair' (2 ranks): ranks 1 did not come before the deadline");
      }
    }
    group.barrier();
    symm::rendezvous(shared, symm)->barrier();
  });
}

}  // namespace
}  // namespace tutti::comm

// What the others see when a rank dies or leaves, and what is left behind: nothing.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/symm/support/ranks.h"
#include "tutti/comm/transport.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/memory_file.h"
#include "tutti/symm/peer_record.h"
#include "tutti/symm/rendezvous.h"
#include "tutti/symm/signal_pad.h"

namespace tutti::comm::symm {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// fn on three processes, of which rank 1 kills itself; the others must end by themselves, soon and with their
// descriptors.
void with_a_death(const RankFunction& fn) {
  const int descriptors = open_descriptors(), segments = mapped_segments();
  const auto outcomes = run_processes(3, "native", [&](const World& world) {
    const int before = open_descriptors();
    const auto start = steady_clock::now();
    fn(world);
    EXPECT_LT(steady_clock::now() - start, 5s);
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(mapped_segments(), segments);
    world.store->barrier("survivors have seen it", 2, 20s);  // who leaves earlier is dead for the other one, too
  });
  for (const int r : {0, 2}) EXPECT_TRUE(outcomes[r].succeeded()) << "rank " << r << ": " << outcomes[r].error;
  EXPECT_TRUE(WIFSIGNALED(outcomes[1].wait_status));
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(mapped_segments(), segments);
}

template <class Fn>
void expect_death_of_rank_1(const char* what, Fn&& fn) {
  try {
    fn();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const PeerError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1 (pid "), std::string::npos) << text;
    EXPECT_NE(text.find("died"), std::string::npos) << text;
  }
}

TEST(SymmFaults, ARankKilledBeforeABarrierIsNamed) {
  with_a_death([](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    const auto handle = rendezvous(t, group);
    handle->barrier();
    if (world.rank == 1) raise(SIGKILL);
    expect_death_of_rank_1("barrier on channel 2", [&] { handle->barrier(2); });
    // The process is usable, and so is what the dead rank left in memory.
    EXPECT_EQ(*handle->get_remote_tensor(1, {1}, DType::f32).data<float>(), 0.0f);
  });
}

TEST(SymmFaults, ARankKilledBeforeItsSignalIsNamed) {
  with_a_death([](const World& world) {
    const SymmGroup group = world.group();
    const auto handle = rendezvous(empty_symm({4}, DType::f32, kCpu, {.group = group}).view_as({2}, {1}, 0), group);
    handle->barrier();
    if (world.rank == 1) raise(SIGKILL);
    if (world.rank == 0) expect_death_of_rank_1("wait_signal on channel 0", [&] { handle->wait_signal(1); });
    if (world.rank == 2) expect_death_of_rank_1("wait_until on channel 5", [&] { handle->wait_until(1, 1, 5); });
  });
}

TEST(SymmFaults, ARankKilledInALaterRendezvousIsNamed) {
  with_a_death([](const World& world) {
    const SymmGroup group = world.group();
    const Tensor first = empty_symm({4}, DType::f32, kCpu, {.group = group});
    rendezvous(first, group)->barrier();
    if (world.rank == 1) raise(SIGKILL);
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    // The second one; or the third, where a survivor comes after the other has given the second one up.
    expect_death_of_rank_1("symmetric memory rendezvous #", [&] { rendezvous(t, group); });
  });
}

TEST(SymmFaults, ARankKilledInTheMiddleOfARendezvousIsNamed) {
  with_a_death([](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    if (world.rank == 1) {
      // Says what a rank says in the first phase, and dies before the second.
      PeerRecord record{.rank = 1,
                        .size = 3,
                        .symmetric = true,
                        .host = host_identity(),
                        .uid = geteuid(),
                        .pid = getpid(),
                        .process = process_token(),
                        .backend = "native",
                        .data_bytes = 16,
                        .pad_bytes = kDefaultSignalPadBytes,
                        .ordinal = 1,
                        .generation = 1};
      world.store->set(group.key() + "/1/1/1", to_text(record));
      world.store->wait({group.key() + "/1/1/0", group.key() + "/1/1/2"}, 5s);
      raise(SIGKILL);
    }
    expect_death_of_rank_1("rendezvous #1", [&] { rendezvous(t, group); });
  });
}

TEST(SymmFaults, ARankThatLeavesIsNamed) {
  for (const char* backend : {"native", "threads"}) {
    run_on(backend, 2, [](const World& world) {
      const SymmGroup group = world.group();
      Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
      auto handle = rendezvous(t, group);
      handle->barrier();
      if (world.rank == 1) return;
      const std::string text = complaint_of([&] { handle->wait_signal(1); });
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
      EXPECT_TRUE(text.find("has left the group") != std::string::npos || text.find("died") != std::string::npos)
          << text;
    });
  }
}

TEST(SymmFaults, ADifferentVersionIsRefusedByName) {
  PeerRecord record{.rank = 2, .size = 3, .host = "h"};
  EXPECT_EQ(parse_record(to_text(record), 2).host, "h");
  std::string text = to_text(record);
  text.replace(text.find(" 2 "), 3, " 9 ");
  EXPECT_EQ(complaint_of([&] { parse_record(text, 2); }),
            "symmetric memory: rank 2 speaks version 9 of the protocol, this rank version 2; all ranks must run the "
            "same release");
}

TEST(SymmFaults, ShortOrDamagedRecordsAreErrors) {
  const std::string good = to_text({.rank = 0, .size = 1, .host = "host", .ticket = "ticket"});
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(complaint_of([&] { parse_record(good.substr(0, length), 0); }), "") << length;
  }
  EXPECT_NE(complaint_of([&] { parse_record(good + "x ", 0); }), "");
  EXPECT_NE(complaint_of([&] { parse_record(good, 1); }), "");
}

TEST(SymmFaults, HostsUsersAndBackendsAreCompared) {
  std::vector<PeerRecord> records(3);
  for (int r = 0; r < 3; ++r)
    records[r] = {.rank = r, .size = 3, .symmetric = true, .host = "boot a", .uid = 5, .backend = "native"};
  EXPECT_EQ(find_disagreement("t", records, false), "");
  auto other = records;
  other[1].host = "boot b";
  EXPECT_EQ(find_disagreement("t", other, false),
            "t: the ranks are on different hosts or in different namespaces, where backend native reaches one host: "
            "ranks 0, 2: boot a; rank 1: boot b");
  EXPECT_EQ(find_disagreement("t", other, true), "");
  other = records;
  other[2].uid = 6;
  EXPECT_EQ(find_disagreement("t", other, false),
            "t: the ranks belong to different users: ranks 0, 1: user 5; rank 2: user 6");
  other = records;
  other[0].backend = "cuda";
  EXPECT_NE(find_disagreement("t", other, false).find("the backends differ: rank 0: cuda; ranks 1, 2: native"),
            std::string::npos);
  other = records;
  other[1].offset = 64;
  EXPECT_NE(find_disagreement("t", other, false).find("begin at different places"), std::string::npos);
}

TEST(SymmFaults, TooLittleMemoryIsAnErrorAtAllocation) {
  const std::string text = complaint_of([] { empty_symm({available_memory() + (int64_t{1} << 30)}, DType::u8); });
  EXPECT_NE(text.find("are wanted and"), std::string::npos) << text;
  EXPECT_NE(complaint_of([] { empty_symm({int64_t{1} << 60, 4}, DType::f64); }), "");
  EXPECT_NE(complaint_of([] { empty_strided_p2p({4}, {2}, DType::f32); }).find("strides do not enlarge it"),
            std::string::npos);
}

TEST(SymmFaults, DescriptorsOfOtherFilesAreRefused) {
  EXPECT_NE(complaint_of([] {
              FileBlock::map(UniqueFd(memfd_create("other", MFD_CLOEXEC)), 4096);
            }).find("no sealed memory file"),
            std::string::npos);
  const auto block = FileBlock::create(100);
  EXPECT_EQ(block->nbytes, 4096);
  EXPECT_NE(ftruncate(block->fd(), 0), 0);  // sealed: nobody can make a peer's access a signal
  EXPECT_NE(ftruncate(block->fd(), 8192), 0);
}

}  // namespace
}  // namespace tutti::comm::symm

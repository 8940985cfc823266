// What every live backend does alike. Each test runs on native (processes) and threads, with two to four ranks (and
// eight).
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "tests/symm/support/ranks.h"
#include "tutti/comm/transport.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/rendezvous.h"
#include "tutti/symm/workspace.h"

namespace tutti::comm::symm {
namespace {

using namespace std::chrono_literals;

class Conformance : public testing::TestWithParam<const char*> {
 protected:
  void on(int size, const RankFunction& fn) const { run_on(GetParam(), size, fn); }
};
INSTANTIATE_TEST_SUITE_P(Symm, Conformance, testing::ValuesIn(live_backends()),
                         [](const auto& info) { return info.param; });

Tensor filled(const SymmGroup& group, const Extents& sizes, float value) {
  const Tensor t = empty_symm(sizes, DType::f32, kCpu, {.group = group});
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = value + static_cast<float>(i);
  return t;
}

TEST_P(Conformance, EveryRankReadsEveryPeer) {
  for (const int size : {1, 2, 3, 4, 8}) {
    on(size, [](const World& world) {
      const SymmGroup group = world.group();
      const Tensor t = filled(group, {5, 3}, 100.0f * static_cast<float>(world.rank));
      const auto handle = rendezvous(t, group);
      EXPECT_EQ(handle->rank(), world.rank);
      EXPECT_EQ(handle->world_size(), world.size);
      EXPECT_EQ(handle->buffer_size(), 60);
      EXPECT_TRUE(handle->world_within_direct_access());
      handle->barrier();
      for (int r = 0; r < world.size; ++r) {
        const Tensor peer = handle->get_remote_tensor(r, {5, 3}, DType::f32);
        EXPECT_EQ(peer.device(), kCpu);
        for (int64_t i = 0; i < 15; ++i)
          EXPECT_EQ(peer.data<float>()[i], 100.0f * static_cast<float>(r) + static_cast<float>(i));
      }
      handle->barrier();
    });
  }
}

TEST_P(Conformance, WritesArriveAtThePeer) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    const auto handle = rendezvous(t, group);
    handle->barrier();
    const int next = (world.rank + 1) % world.size;
    handle->put(Tensor::of<float>({static_cast<float>(world.rank), -1.0f}), next, 1);
    handle->quiet();
    handle->barrier();
    const int before = (world.rank + world.size - 1) % world.size;
    EXPECT_EQ(t.data<float>()[0], 0.0f);
    EXPECT_EQ(t.data<float>()[1], static_cast<float>(before));
    EXPECT_EQ(t.data<float>()[2], -1.0f);
    Tensor copy = Tensor::empty({3});
    handle->get(copy, next, 1);
    EXPECT_EQ(copy.data<float>()[0], static_cast<float>(world.rank));
    handle->barrier();
  });
}

TEST_P(Conformance, DataIsAlignedAndFreshMemoryIsZero) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    for (const int64_t n : {1, 7, 4096, 100000}) {
      const Tensor t = empty_symm({n}, DType::u8, kCpu, {.group = group});
      EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw_data()) % 64, 0u);
      EXPECT_EQ(std::accumulate(t.data<uint8_t>(), t.data<uint8_t>() + n, 0), 0);
    }
  });
}

TEST_P(Conformance, CallsAfterTheFirstReturnTheSameHandleWithoutTheOthers) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    const auto handle = rendezvous(t, group);
    // Unequal numbers of calls: nobody waits for the other.
    for (int i = 0; i < (world.rank == 0 ? 5 : 0); ++i) EXPECT_EQ(rendezvous(t, group), handle);
    EXPECT_EQ(rendezvous(t), handle);
    handle->barrier();
  });
}

TEST_P(Conformance, TensorsOfEqualContentsHaveHandlesOfTheirOwn) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor a = filled(group, {4}, 0), b = filled(group, {4}, 0);
    const auto ha = rendezvous(a, group), hb = rendezvous(b, group);
    EXPECT_NE(ha, hb);
    EXPECT_EQ(rendezvous(a, group), ha);
    EXPECT_NE(ha->buffer_ptrs(), hb->buffer_ptrs());
    hb->barrier();
  });
}

TEST_P(Conformance, AllocationIsLocal) {
  on(2, [](const World& world) {
    std::vector<Tensor> kept;
    for (int i = 0; i < 3 * world.rank; ++i)
      kept.push_back(empty_symm({4}, DType::f32, kCpu, {.backend = world.backend}));
    const SymmGroup group = world.group();
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.backend = world.backend});
    rendezvous(t, group)->barrier();  // allocations for no group have no order to agree on
  });
}

TEST_P(Conformance, ZeroDimAndEmptyTensorsWork) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor scalar = empty_symm({}, DType::f32, kCpu, {.group = group});
    *scalar.data<float>() = static_cast<float>(world.rank) + 0.5f;
    const auto handle = rendezvous(scalar, group);
    handle->barrier();
    EXPECT_EQ(handle->get_remote_tensor(1 - world.rank, {}, DType::f32).item(), 1.5 - world.rank);
    const Tensor all = handle->contiguous_view({}, {}, DType::f32);
    EXPECT_EQ(all.extents(), (Extents{2}));
    EXPECT_EQ(to_contiguous(all).data<float>()[1 - world.rank], 1.5f - static_cast<float>(world.rank));
    const Tensor none = empty_symm({3, 0}, DType::f64, kCpu, {.group = group});
    EXPECT_TRUE(is_symm_mem_tensor(none));
    const auto empty_handle = rendezvous(none, group);
    EXPECT_EQ(empty_handle->buffer_size(), 0);
    EXPECT_EQ(empty_handle->get_remote_tensor(1 - world.rank, {3, 0}, DType::f64).numel(), 0);
    empty_handle->barrier();
    handle->barrier();
  });
}

TEST_P(Conformance, ViewsIntoTheMiddleMeetWithTheirOffset) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {6, 4}, 100.0f * static_cast<float>(world.rank));
    const Tensor view = t.view_as({2, 2}, {4, 1}, 9);
    EXPECT_TRUE(is_symm_mem_tensor(view));
    const auto handle = rendezvous(view, group);
    EXPECT_EQ(handle->offset(), 36);
    handle->barrier();
    const int peer = 1 - world.rank;
    const Tensor remote = handle->get_remote_strided(peer, {2, 2}, {4, 1}, DType::f32);
    EXPECT_EQ(to_contiguous(remote).data<float>()[3], 100.0f * static_cast<float>(peer) + 14.0f);
    const Tensor all = handle->contiguous_view({2, 2}, {4, 1}, DType::f32);
    EXPECT_EQ(all.extents(), (Extents{2, 2, 2}));
    EXPECT_EQ(all.strides()[0] * 4 % 4096, 0);
    const Tensor dense = to_contiguous(all);
    EXPECT_EQ(dense.data<float>()[4 * peer + 3], 100.0f * static_cast<float>(peer) + 14.0f);
    // Writing through the view reaches the peer.
    if (world.rank == 0) all.data<float>()[all.strides()[0]] = -7.0f;
    handle->barrier();
    if (world.rank == 1) {
      EXPECT_EQ(t.data<float>()[9], -7.0f);
    }
    // Another offset of the same allocation.
    EXPECT_EQ(rendezvous(t, group)->offset(), 0);
    handle->barrier();
  });
}

TEST_P(Conformance, BarriersOrderWritesOnManyChannels) {
  on(4, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    const auto handle = rendezvous(t, group);
    for (int i = 1; i <= 100; ++i) {
      t.data<float>()[0] = static_cast<float>(i);
      handle->barrier(i % 3);
      for (int r = 0; r < world.size; ++r) {
        EXPECT_EQ(*handle->get_remote_tensor(r, {1}, DType::f32).data<float>(), static_cast<float>(i));
      }
      handle->barrier(handle->channels() - 1);
    }
  });
}

TEST_P(Conformance, BinarySignalsPassOneAtATime) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    const auto handle = rendezvous(t, group);
    const int next = (world.rank + 1) % 3, before = (world.rank + 2) % 3;
    for (int i = 0; i < 50; ++i) {
      handle->put_signal(next, 2);
      handle->wait_signal(before, 2);
    }
    handle->barrier();
    if (world.rank == 0) {
      handle->put_signal(1, 3);
      const std::string text = complaint_of([&] { handle->put_signal(1, 3, 50ms); });
      EXPECT_NE(text.find("put_signal on channel 3: waited 0."), std::string::npos) << text;
      EXPECT_NE(text.find("ranks 1"), std::string::npos) << text;
    }
    handle->barrier();
    if (world.rank == 1) handle->wait_signal(0, 3);
    handle->barrier();
  });
}

TEST_P(Conformance, CountersAddAcrossRanks) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {64}, 0);
    const auto handle = rendezvous(t, group);
    handle->barrier();
    if (world.rank == 0) {
      for (int i = 0; i < 10; ++i) handle->put_with_signal(Tensor::of<float>({static_cast<float>(i)}), 1, i, 5);
      handle->signal_add(1, uint64_t{1} << 40, 6);
    } else {
      EXPECT_EQ(handle->wait_until(0, 10, 5), 10u);
      EXPECT_EQ(t.data<float>()[9], 9.0f);
      EXPECT_EQ(handle->wait_until(0, 5, 6), uint64_t{1} << 40);
      EXPECT_EQ(handle->signal_value(0, 7), 0u);
    }
    handle->barrier();
  });
}

TEST_P(Conformance, MulticastWriteReachesAllWithoutHardware) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    const auto handle = rendezvous(t, group);
    EXPECT_FALSE(handle->has_multicast_support());
    EXPECT_EQ(handle->multicast_ptr(), nullptr);
    handle->barrier();
    if (world.rank == 2) handle->multicast_write(Tensor::of<float>({42.0f}), 3);
    handle->barrier();
    EXPECT_EQ(t.data<float>()[3], 42.0f);
    handle->barrier();
  });
}

TEST_P(Conformance, ChannelsOutOfRangeNameTheLargest) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group, .signal_pad_bytes = 1024});
    const auto handle = rendezvous(t, group);
    EXPECT_EQ(handle->channels(), 16);
    EXPECT_EQ(handle->signal_pad_size(), 1024);
    for (const int channel : {-1, 16}) {
      const std::string text = complaint_of([&] { handle->barrier(channel); });
      EXPECT_NE(text.find("the largest legal channel is 15"), std::string::npos) << text;
    }
    EXPECT_NE(complaint_of([&] { handle->put_signal(2); }).find("ranks are 0 to 1"), std::string::npos);
    handle->barrier();
  });
}

TEST_P(Conformance, ViewsStayInsideTheAllocation) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {8}, 0);
    const auto handle = rendezvous(t, group);
    EXPECT_EQ(handle->get_buffer(1, {2}, DType::f32, 6).numel(), 2);
    EXPECT_NE(complaint_of([&] { handle->get_buffer(1, {2}, DType::f32, 7); }), "");
    EXPECT_NE(complaint_of([&] { handle->get_buffer(1, {2}, DType::f32, -1); }).find("negative"), std::string::npos);
    EXPECT_NE(complaint_of([&] { handle->get_buffer(2, {2}, DType::f32); }).find("ranks are 0 to 1"),
              std::string::npos);
    EXPECT_NE(complaint_of([&] { handle->get_buffer(-1, {2}, DType::f32); }), "");
    const int64_t huge = int64_t{1} << 62;
    EXPECT_NE(complaint_of([&] { handle->get_buffer(1, {huge, 4}, DType::f32); }), "");
    EXPECT_NE(complaint_of([&] { handle->get_buffer(1, {huge}, DType::f64); }), "");
    EXPECT_NE(complaint_of([&] { handle->get_buffer(1, {1}, DType::f32, huge); }), "");
    EXPECT_NE(complaint_of([&] { handle->get_buffer(1, {-1}, DType::f32); }), "");
    EXPECT_NE(complaint_of([&] { handle->get_remote_strided(1, {2}, {huge}, DType::f32); }), "");
    EXPECT_NE(complaint_of([&] { handle->put(Tensor::empty({9}), 1); }), "");
    EXPECT_NE(complaint_of([&] { handle->get(Tensor::empty({4}), 1, -3); }).find("negative"), std::string::npos);
    EXPECT_EQ(handle->get_signal_pad(1).nbytes(), handle->signal_pad_size());
    EXPECT_NE(complaint_of([&] { handle->get_signal_pad(1, Extents{handle->signal_pad_size()}); }), "");
    // Bytes 4 on are no place for f64.
    const auto odd = rendezvous(t.view_as({2}, {1}, 1), group);
    EXPECT_NE(complaint_of([&] { odd->get_remote_tensor(1, {1}, DType::f64); }).find("is no place"), std::string::npos);
    handle->barrier();
  });
}

TEST_P(Conformance, FreedTensorsAreNotReachable) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    Tensor t = filled(group, {8}, 0);
    Tensor flag = filled(group, {1}, 0);
    const auto handle = rendezvous(t, group);
    const auto other = rendezvous(flag, group);
    const Tensor kept = handle->get_remote_tensor(1 - world.rank, {8}, DType::f32);
    other->barrier();
    if (world.rank == 1) t = Tensor();
    other->barrier();
    if (world.rank == 0) {
      EXPECT_NE(complaint_of([&] { handle->get_remote_tensor(1, {8}, DType::f32); }).find("rank 1 has freed"),
                std::string::npos);
      EXPECT_EQ(kept.data<float>()[3], 3.0f);  // the memory stays while somebody looks at it
    }
    other->barrier();
  });
}

TEST_P(Conformance, PersistentIdsGiveTheSameMemoryWithCleanPads) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const uint64_t id = 7;
    void* first = nullptr;
    std::shared_ptr<SymmHandle> old;
    for (int round = 0; round < 3; ++round) {
      const Tensor t = empty_symm({16}, DType::f32, kCpu, {.group = group, .alloc_id = id});
      if (round == 0) first = t.raw_data();
      EXPECT_EQ(t.raw_data(), first);
      EXPECT_NE(complaint_of([&] {
                  empty_symm({16}, DType::f32, kCpu, {.group = group, .alloc_id = id});
                }).find("still alive"),
                std::string::npos);
      const auto handle = rendezvous(t, group);
      EXPECT_NE(handle, old);
      if (old) {
        EXPECT_NE(complaint_of([&] { old->barrier(); }).find("its memory has a new one"), std::string::npos);
        old.reset();  // the peer must not take this for the end of the new handle
      }
      EXPECT_EQ(handle->signal_value(1 - world.rank, 4), 0u);
      handle->barrier();
      handle->put_signal(1 - world.rank, 1);  // nobody takes it
      handle->signal_add(1 - world.rank, 3, 4);
      handle->barrier();
      old = handle;
    }
    EXPECT_NE(
        complaint_of([&] { empty_symm({17}, DType::f32, kCpu, {.group = group, .alloc_id = id}); }).find("68 bytes"),
        std::string::npos);
  });
}

TEST_P(Conformance, OneAllocationMeetsSeveralGroups) {
  on(3, [](const World& world) {
    const SymmGroup all = world.group("all");
    const SymmGroup pair = world.subgroup("pair", {2, 0});  // another order
    const Tensor t = filled(all, {4}, 10.0f * static_cast<float>(world.rank));
    std::shared_ptr<SymmHandle> two;
    if (pair) two = rendezvous(t, pair);
    const auto three = rendezvous(t, all);
    three->barrier(0);
    if (pair) {
      EXPECT_EQ(two->rank(), world.rank == 2 ? 0 : 1);
      EXPECT_EQ(two->rank_to_global_rank(), (std::vector<int>{2, 0}));
      // Signals of the two groups do not meet: same channel, same slots.
      two->put_signal(1 - two->rank(), 0);
      two->wait_signal(1 - two->rank(), 0);
      two->barrier(0);
      EXPECT_EQ(*two->get_remote_tensor(0, {1}, DType::f32).data<float>(), 20.0f);
    }
    three->barrier(0);
  });
}

TEST_P(Conformance, StrictAndOverlappingSubgroupsWork) {
  on(4, [](const World& world) {
    const SymmGroup low = world.subgroup("g", {0, 1, 2}), high = world.subgroup("g", {1, 2, 3});
    for (const SymmGroup* group : {&low, &high}) {
      if (!*group) continue;
      const Tensor t = filled(*group, {1}, static_cast<float>(world.rank));
      const auto handle = rendezvous(t, *group);
      handle->barrier();
      for (int r = 0; r < 3; ++r) {
        EXPECT_EQ(*handle->get_remote_tensor(r, {1}, DType::f32).data<float>(),
                  static_cast<float>(group->global_ranks()[r]));
      }
      handle->barrier();
    }
    // Subgroup first, then the world.
    const SymmGroup all = world.group();
    rendezvous(filled(all, {1}, 0), all)->barrier();
  });
}

TEST_P(Conformance, RecycledNamesMeetNothingOfTheirPast) {
  on(2, [](const World& world) {
    for (int i = 0; i < 5; ++i) {
      const SymmGroup group = world.group("1");
      const Tensor t = filled(group, {4}, static_cast<float>(10 * i + world.rank));
      const auto handle = rendezvous(t, group);
      handle->barrier();
      EXPECT_EQ(*handle->get_remote_tensor(1 - world.rank, {1}, DType::f32).data<float>(),
                static_cast<float>(10 * i + 1 - world.rank));
      handle->barrier();
    }
    // Two groups of one name at a time.
    const SymmGroup a = world.group("1"), b = world.group("1");
    const auto ha = rendezvous(filled(a, {4}, 1), a), hb = rendezvous(filled(b, {8}, 1), b);
    EXPECT_NE(ha, hb);
  });
}

TEST_P(Conformance, DifferentSizesAreTheSameErrorOnAllRanks) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = empty_symm({world.rank == 1 ? 5 : 4}, DType::f32, kCpu, {.group = group});
    const std::string text = complaint_of([&] { rendezvous(t, group); });
    EXPECT_NE(text.find("the allocations have different sizes: ranks 0, 2: 16 bytes; rank 1: 20 bytes"),
              std::string::npos)
        << text;
    // The group goes on.
    const Tensor good = filled(group, {4}, 0);
    rendezvous(good, group)->barrier();
  });
}

TEST_P(Conformance, SwappedAllocationsAreTheSameErrorOnAllRanks) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor a = filled(group, {4}, 0), b = filled(group, {4}, 0);
    const std::string text = complaint_of([&] { rendezvous(world.rank == 0 ? a : b, group); });
    EXPECT_NE(text.find("not made in the same order"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0: allocation 1"), std::string::npos) << text;
  });
}

TEST_P(Conformance, PlainTensorsAreATypedErrorOrNull) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor plain = Tensor::empty({4});
    EXPECT_FALSE(is_symm_mem_tensor(plain));
    EXPECT_EQ(try_rendezvous(plain, group), nullptr);
    const Tensor t = world.rank == 1 ? plain : filled(group, {4}, 0);
    for (int i = 0; i < 2; ++i) {
      try {
        i == 0 ? rendezvous(t, group) : try_rendezvous(t, group);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const NotSymmetricError& error) {
        EXPECT_NE(std::string(error.what()).find("the tensor of ranks 1 is not in symmetric memory"),
                  std::string::npos);
      }
    }
  });
}

TEST_P(Conformance, TimeoutsNameWhoIsLateAndTheBarrierGoesOn) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    const auto handle = rendezvous(t, group);
    if (world.rank != 2) {
      try {
        handle->barrier(7, 100ms);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const TimeoutError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("barrier on channel 7"), std::string::npos) << text;
        EXPECT_NE(text.find("in vain for ranks 2"), std::string::npos) << text;
      }
    } else {
      std::this_thread::sleep_for(200ms);
    }
    handle->barrier(7);
    handle->barrier(7);
    const std::string text = complaint_of([&] { handle->wait_signal((world.rank + 1) % 3, 1, 20ms); });
    EXPECT_NE(text.find("wait_signal on channel 1"), std::string::npos) << text;
    handle->barrier();
  });
}

TEST_P(Conformance, LateRanksOfARendezvousAreNamed) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group("late", 1s);
    const Tensor t = filled(group, {4}, 0);
    if (world.rank == 1) return;
    world.store->barrier("those that come", 2, 20s);  // else, on a busy machine, one of them is late for the other
    try {
      rendezvous(t, group);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const TimeoutError& error) {
      // Who hears that the other one gave this meeting up misses it in the next one as well.
      const std::string text = error.what();
      const bool names_rank_1 = text.find("ranks 1 did not come") != std::string::npos ||
                                text.find("ranks 1, 2 did not come") != std::string::npos ||
                                text.find("ranks 0, 1 did not come") != std::string::npos;
      EXPECT_TRUE(names_rank_1) << text;
    }
  });
}

TEST_P(Conformance, RanksThatWereLateMeetTheOthersTheNextTime) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    // Rank 1 gives up once, rank 0 twice; then all come.
    if (world.rank == 0) world.store->wait({"rank 1 has given up"}, 20s);
    for (int i = world.rank; i < 2 && world.rank < 2; ++i) {
      const std::string text = complaint_of([&] { rendezvous(t, group, 30ms); });
      EXPECT_NE(text.find("did not come before the deadline"), std::string::npos) << text;
    }
    if (world.rank == 1) world.store->set("rank 1 has given up", "1");
    if (world.rank != 0) world.store->wait({"rank 0 has given up"}, 20s);
    if (world.rank == 0) world.store->set("rank 0 has given up", "1");
    for (int i = 0; i < 3; ++i) rendezvous(i == 0 ? t : filled(group, {4}, i), group)->barrier();
    // No word of it is left, but for which number comes next.
    world.store->barrier("end", 3, 20s);
    for (const std::string& key : world.store->list_keys(group.key())) {
      EXPECT_TRUE(key.find("/made/") != std::string::npos || key.ends_with("/next")) << key;
    }
  });
}

TEST_P(Conformance, WhoWaitsInARendezvousGivenUpBeforeItCameGoesOnToTheNext) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = filled(group, {4}, 0);
    if (world.rank == 1) {
      // As a rank leaves it that gave up just before rank 0 said that it is there.
      world.store->wait({group.key() + "/1/1/0"}, 20s);
      world.store->set(group.key() + "/1/next", "4");
    }
    EXPECT_NE(rendezvous(t, group), nullptr);
    const std::string text =
        complaint_of([&] { rendezvous(world.rank == 0 ? filled(group, {4}, 1) : filled(group, {8}, 1), group); });
    EXPECT_NE(text.find("rendezvous #5 of group"), std::string::npos) << text;
  });
}

TEST_P(Conformance, WorkspaceLeasesDoNotOverlap) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    {
      const auto a = get_symm_mem_workspace(group, 1000), b = get_symm_mem_workspace(group, 1000);
      EXPECT_EQ(&a.handle(), &b.handle());
      EXPECT_EQ(a.offset(), 0);
      EXPECT_EQ(b.offset(), 1024);
      const auto channel_a = a.handle().lease_channel(), channel_b = b.handle().lease_channel();
      EXPECT_NE(channel_a.channel(), channel_b.channel());
      a.view(world.rank, {4}, DType::f32).data<float>()[0] = static_cast<float>(world.rank);
      b.view(world.rank, {4}, DType::f32).data<float>()[0] = 10.0f + static_cast<float>(world.rank);
      a.handle().barrier(channel_a.channel());
      EXPECT_EQ(a.view(1 - world.rank, {1}, DType::f32).item(), 1.0 - world.rank);
      EXPECT_EQ(b.view(1 - world.rank, {1}, DType::f32).item(), 11.0 - world.rank);
      EXPECT_NE(complaint_of([&] { a.view(0, {1000}, DType::f32); }), "");
      const auto large = get_symm_mem_workspace(group, 4 << 20);  // grows
      EXPECT_NE(&large.handle(), &a.handle());
      large.handle().barrier();
    }
    EXPECT_EQ(get_symm_mem_workspace(group, 5 << 20).offset(), 0);
  });
}

TEST_P(Conformance, NothingIsLeftWhenGroupsAndTensorsAreGone) {
  const int descriptors = open_descriptors(), segments = mapped_segments();
  on(2, [&](const World& world) {
    const int before = open_descriptors();
    for (int i = 0; i < 3; ++i) {
      const SymmGroup group = world.group("g" + std::to_string(i));
      const Tensor t = filled(group, {1000}, 0);
      const auto handle = rendezvous(t, group);
      handle->contiguous_view({1000}, {1}, DType::f32);
      get_symm_mem_workspace(group, 100);
      handle->barrier();
      handle->barrier();
    }
    if (world.backend == "native") {  // processes: nobody else opens anything meanwhile
      EXPECT_EQ(open_descriptors(), before);
      EXPECT_EQ(mapped_segments(), segments);
    }
  });
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(mapped_segments(), segments);
}

TEST_P(Conformance, TheStoreIsCleanAfterwards) {
  on(3, [](const World& world) {
    {
      const SymmGroup group = world.group();
      const Tensor t = filled(group, {4}, 0);
      rendezvous(t, group)->barrier();
      complaint_of([&] { rendezvous(empty_symm({1 + world.rank}, DType::f32, kCpu, {.group = group}), group); });
    }
    world.store->barrier("end", world.size);
    if (world.rank == 0) {
      for (const std::string& key : world.store->list_keys()) EXPECT_NE(key.find("/made/"), std::string::npos) << key;
    }
  });
}

}  // namespace
}  // namespace tutti::comm::symm

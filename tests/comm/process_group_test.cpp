#include "tutti/comm/process_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <numeric>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transport.h"
#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {
namespace {

using ::testing::TestWithParam;
using ::testing::Values;

// Both kinds of ranks that share memory.
void run_both(int ranks, const std::function<void(ProcessGroup&)>& fn) {
  run_ranks(ranks, fn);
  const auto results = run_forked(ranks, fn);
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
}

// Values that tell rank and position.
Tensor marked(int rank, int64_t count, int64_t first = 0) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = rank * 1'000'000 + first + i;
  return Tensor::of(values);
}

void expect_marked(const Tensor& t, int rank, int64_t first = 0) {
  for (int64_t i = 0; i < t.numel(); ++i) {
    TUTTI_CHECK(t.data<int64_t>()[i] == rank * 1'000'000 + first + i, "element {} is {}; expected that of rank {}", i,
                t.data<int64_t>()[i], rank);
  }
}

class Collectives : public TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, Values(1, 2, 3, 4, 5, 8));
// Below a line, in a line, in a slot, in several parts, in several pieces.
constexpr int64_t kCounts[] = {0, 1, 7, 11, 100, 1023, 5000, 20000, 600'000};

TEST_P(Collectives, AllReduceAddsInTheTreeOfRanks) {
  run_both(GetParam(), [](ProcessGroup& group) {
    for (const int64_t count : kCounts) {
      std::vector<float> values = rank_values(group.rank(), count);
      group.all_reduce_values<float>(values);
      TUTTI_CHECK(same_bits(values, serial_tree(group.size(), count)), "other bits for {} values", count);
    }
  });
}

TEST_P(Collectives, ReduceWritesTheRootOnly) {
  run_both(GetParam(), [](ProcessGroup& group) {
    for (const int64_t count : kCounts) {
      const int root = group.size() - 1;
      const std::vector<float> before = rank_values(group.rank(), count);
      const Tensor t = Tensor::of(before);
      group.reduce(t, root);
      const std::vector<float> after(t.data<float>(), t.data<float>() + count);
      TUTTI_CHECK(same_bits(after, group.rank() == root ? serial_tree(group.size(), count) : before),
                  "other bits for {} values", count);
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPart) {
  run_both(GetParam(), [](ProcessGroup& group) {
    for (const int64_t count : kCounts) {
      const int64_t each = count / group.size();
      const Tensor input = Tensor::of(rank_values(group.rank(), each * group.size())), output = Tensor::empty({each});
      group.reduce_scatter_single(output, input);
      const std::vector<float> sum = serial_tree(group.size(), each * group.size());
      const std::vector<float> mine(sum.begin() + group.rank() * each, sum.begin() + (group.rank() + 1) * each);
      TUTTI_CHECK(same_bits({output.data<float>(), output.data<float>() + each}, mine), "other bits for {} values",
                  each);
      const std::vector<float> untouched = rank_values(group.rank(), each * group.size());
      TUTTI_CHECK(same_bits({input.data<float>(), input.data<float>() + input.numel()}, untouched),
                  "the input was written");
    }
  });
}

TEST_P(Collectives, ReduceScatterOfUnevenLists) {
  run_both(GetParam(), [](ProcessGroup& group) {
    std::vector<Tensor> inputs;
    int64_t begin = 0, mine = 0;
    for (int p = 0; p < group.size(); ++p) {
      const int64_t count = p * 700;  // rank 0 takes nothing
      if (p == group.rank()) mine = begin;
      inputs.push_back(Tensor::empty({count}));
      begin += count;
    }
    const std::vector<float> values = rank_values(group.rank(), begin);
    begin = 0;
    for (Tensor& input : inputs) {
      std::copy_n(values.begin() + begin, input.numel(), input.data<float>());
      begin += input.numel();
    }
    const Tensor output = Tensor::empty({group.rank() * 700});
    group.reduce_scatter_v(output, inputs);
    const std::vector<float> sum = serial_tree(group.size(), begin);
    TUTTI_CHECK(same_bits({output.data<float>(), output.data<float>() + output.numel()},
                          {sum.begin() + mine, sum.begin() + mine + output.numel()}),
                "other bits");
  });
}

TEST_P(Collectives, AllGather) {
  run_both(GetParam(), [](ProcessGroup& group) {
    for (const int64_t count : kCounts) {
      const Tensor output = Tensor::empty({group.size() * count}, DType::i64);
      group.all_gather_single(output, marked(group.rank(), count));
      std::vector<Tensor> list;
      for (int p = 0; p < group.size(); ++p) {
        expect_marked(output.view_as({count}, {1}, p * count), p);
        list.push_back(Tensor::empty({count}, DType::i64));
      }
      group.all_gather(list, marked(group.rank(), count));
      for (int p = 0; p < group.size(); ++p) expect_marked(list[static_cast<size_t>(p)], p);
    }
  });
}

TEST_P(Collectives, AllGatherInPlaceAndUneven) {
  run_both(GetParam(), [](ProcessGroup& group) {
    const int64_t count = 3000;
    const Tensor output = Tensor::empty({group.size() * count}, DType::i64);
    const Tensor mine = output.view_as({count}, {1}, group.rank() * count);
    std::copy_n(marked(group.rank(), count).data<int64_t>(), count, mine.data<int64_t>());
    group.all_gather_single(output, mine);
    std::vector<Tensor> list;
    for (int p = 0; p < group.size(); ++p) {
      expect_marked(output.view_as({count}, {1}, p * count), p);
      list.push_back(Tensor::empty({p * 1000}, DType::i64));
    }
    group.all_gather_v(list, marked(group.rank(), group.rank() * 1000));
    for (int p = 0; p < group.size(); ++p) expect_marked(list[static_cast<size_t>(p)], p);
  });
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  run_both(GetParam(), [](ProcessGroup& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const int64_t count : kCounts) {
        const Tensor t = marked(group.rank(), count);
        group.broadcast(t, root);
        expect_marked(t, root);
      }
    }
  });
}

TEST_P(Collectives, GatherAndScatter) {
  run_both(GetParam(), [](ProcessGroup& group) {
    for (const int64_t count : {int64_t{0}, int64_t{3}, int64_t{2000}}) {
      const int root = group.size() / 2;
      std::vector<Tensor> list;
      for (int p = 0; p < group.size() && group.rank() == root; ++p) list.push_back(Tensor::empty({count}, DType::i64));
      group.gather(list, marked(group.rank(), count), root);
      for (size_t p = 0; p < list.size(); ++p) expect_marked(list[p], static_cast<int>(p));
      const Tensor back = Tensor::empty({count}, DType::i64);
      group.scatter(back, list, root);
      expect_marked(back, group.rank());
      const Tensor all = group.rank() == root ? Tensor::empty({group.size() * count}, DType::i64) : Tensor();
      group.gather_single(all, marked(group.rank(), count), root);
      for (int p = 0; p < group.size() && group.rank() == root; ++p)
        expect_marked(all.view_as({count}, {1}, p * count), p);
    }
  });
}

TEST_P(Collectives, AllToAllEvenAndUneven) {
  run_both(GetParam(), [](ProcessGroup& group) {
    const int n = group.size(), me = group.rank();
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{50}, int64_t{30000}}) {
      const Tensor output = Tensor::empty({n * count}, DType::i64);
      group.all_to_all_single(output, marked(me, n * count));
      for (int p = 0; p < n; ++p) expect_marked(output.view_as({count}, {1}, p * count), p, me * count);
    }
    // Rank p sends 100 * p + 7 * q rows of two to rank q.
    const auto rows = [](int from, int to) { return int64_t{100} * from + 7 * to; };
    std::vector<int64_t> sent, taken;
    for (int p = 0; p < n; ++p) sent.push_back(rows(me, p)), taken.push_back(rows(p, me));
    const int64_t out = std::accumulate(sent.begin(), sent.end(), int64_t{0}),
                  in = std::accumulate(taken.begin(), taken.end(), int64_t{0});
    const Tensor input = marked(me, out * 2).view_as({out, 2}, {2, 1}, 0), output = Tensor::empty({in, 2}, DType::i64);
    group.all_to_all_v_single(output, input, taken, sent);
    int64_t at = 0;
    for (int p = 0; p < n; ++p) {
      int64_t first = 0;
      for (int q = 0; q < me; ++q) first += rows(p, q);
      expect_marked(output.view_as({rows(p, me) * 2}, {1}, at * 2), p, first * 2);
      at += rows(p, me);
    }
  });
}

TEST_P(Collectives, ListsOfAllToAllMayBeUneven) {
  run_both(GetParam(), [](ProcessGroup& group) {
    std::vector<Tensor> inputs, outputs;
    for (int p = 0; p < group.size(); ++p) {
      inputs.push_back(marked(group.rank(), group.rank() * 10 + p));
      outputs.push_back(Tensor::empty({p * 10 + group.rank()}, DType::i64));
    }
    group.all_to_all(outputs, inputs);
    for (int p = 0; p < group.size(); ++p) expect_marked(outputs[static_cast<size_t>(p)], p);
  });
}

TEST_P(Collectives, TakeTensorsOfAnyStrides) {
  run_both(GetParam(), [](ProcessGroup& group) {
    const Tensor base = Tensor::of(rank_values(group.rank(), 60), {6, 10});
    const Tensor columns = base.view_as({10, 6}, {1, 10}, 0);
    group.all_reduce(columns);
    TUTTI_CHECK(same_bits({base.data<float>(), base.data<float>() + 60}, serial_tree(group.size(), 60)), "other bits");
    const Tensor output = Tensor::empty_strided({group.size() * 10, 2}, {1, group.size() * 10}, DType::i64);
    group.all_gather_single(output, marked(group.rank(), 20).view_as({10, 2}, {2, 1}, 0));
    for (int p = 0; p < group.size(); ++p) {
      for (int64_t i = 0; i < 20; ++i) {
        const int64_t value = output.data<int64_t>()[(p * 10 + i / 2) + (i % 2) * group.size() * 10];
        TUTTI_CHECK(value == p * 1'000'000 + i, "row {} of rank {} is {}", i / 2, p, value);
      }
    }
  });
}

TEST_P(Collectives, ManyCoalescedTensorsOfManyTypes) {
  run_both(GetParam(), [](ProcessGroup& group) {
    const Tensor a = Tensor::of(rank_values(group.rank(), 5)), b = marked(1, 3),
                 c = Tensor::of(rank_values(group.rank(), 7000));
    const Tensor list[] = {a, b, c};
    group.all_reduce_coalesced(list, ReduceKind::sum, {.async = true}).wait();
    TUTTI_CHECK(same_bits({a.data<float>(), a.data<float>() + 5}, serial_tree(group.size(), 5)), "other bits in a");
    TUTTI_CHECK(same_bits({c.data<float>(), c.data<float>() + 7000}, serial_tree(group.size(), 7000)),
                "other bits in c");
    TUTTI_CHECK(b.data<int64_t>()[1] == 1'000'001 * group.size(), "other sum in b");
  });
}

TEST_P(Collectives, BytesOfAnySize) {
  run_both(GetParam(), [](ProcessGroup& group) {
    const auto text = [](int rank) {
      return std::string(static_cast<size_t>(rank * 1000), static_cast<char>('a' + rank));
    };
    const std::vector<std::string> all = group.all_gather_bytes(text(group.rank()));
    for (int p = 0; p < group.size(); ++p)
      TUTTI_CHECK(all[static_cast<size_t>(p)] == text(p), "other bytes of rank {}", p);
    TUTTI_CHECK(group.broadcast_bytes(text(group.rank()), group.size() - 1) == text(group.size() - 1), "other bytes");
    const std::vector<std::string> gathered = group.gather_bytes(text(group.rank()), 0);
    TUTTI_CHECK(gathered.empty() == (group.rank() != 0) && (gathered.empty() || gathered == all),
                "other bytes gathered");
    TUTTI_CHECK(group.scatter_bytes(gathered, 0) == text(group.rank()), "other bytes scattered");
  });
}

TEST_P(Collectives, MessagesMatchByTagWhateverTheirOrder) {
  run_both(GetParam(), [](ProcessGroup& group) {
    if (group.size() < 2 || group.rank() > 1) return;
    const int peer = 1 - group.rank();
    const Tensor small = marked(group.rank(), 3), large = marked(group.rank(), 50'000, 9);
    std::vector<Work> sent = {group.isend(large, peer, 5), group.isend(small, peer, 6), group.isend(small, peer, 5)};
    const Tensor a = Tensor::empty({3}, DType::i64), b = Tensor::empty({50'000}, DType::i64),
                 c = Tensor::empty({3}, DType::i64);
    group.recv(a, peer, 6);
    group.recv(b, peer, 5);
    const Work any = group.recv_any(c, 5);
    any.wait();
    TUTTI_CHECK(any.source_rank() == peer, "from rank {}", any.source_rank());
    expect_marked(a, peer);
    expect_marked(b, peer, 9);
    for (Work& work : sent) work.wait();
    expect_marked(c, peer);
  });
}

TEST_P(Collectives, ABatchExchangesAroundTheRing) {
  run_both(GetParam(), [](ProcessGroup& group) {
    if (group.size() < 2) return;
    const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
    const Tensor out = marked(group.rank(), 40'000), in = Tensor::empty({40'000}, DType::i64);
    const PointToPoint operations[] = {{PointToPoint::Kind::isend, out, next, 1},
                                       {PointToPoint::Kind::irecv, in, previous, 1}};
    group.batch_isend_irecv(operations).wait();
    expect_marked(in, previous);
  });
}

TEST_P(Collectives, AsynchronousCallsEndInOrderWhoeverWaits) {
  run_both(GetParam(), [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    std::vector<int> ended;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(Tensor::of(rank_values(group.rank(), 1 + i * 500)));
      works.push_back(group.all_reduce(tensors.back(), ReduceKind::sum, {.async = true}));
      works.back().then([&ended, i] { ended.push_back(i); });
    }
    works.back().wait();
    for (int i = 0; i < 20; ++i) {
      TUTTI_CHECK(works[static_cast<size_t>(i)].is_done(), "call {} has not ended", i);
      const Tensor& t = tensors[static_cast<size_t>(i)];
      TUTTI_CHECK(same_bits({t.data<float>(), t.data<float>() + t.numel()}, serial_tree(group.size(), t.numel())),
                  "other bits in {}", i);
      TUTTI_CHECK(ended[static_cast<size_t>(i)] == i, "callbacks out of order");
    }
  });
}

TEST(ProcessGroup, ManyMeetingsOnFewCoresMakeProgress) {
  run_ranks(16, [](ProcessGroup& group) {
    for (int i = 0; i < 50; ++i) {
      int64_t value = group.rank();
      group.all_reduce_values<int64_t>({&value, 1});
      ASSERT_EQ(value, 120);
      group.barrier();
    }
  });
}

TEST(ProcessGroup, SaysWhoGivesANanWhenAsked) {
  run_ranks(2,
            [](ProcessGroup& group) {
              try {
                group.all_reduce(Tensor::of<float>({1, group.rank() == 1 ? NAN : 2.0f}));
                FAIL();
              } catch (const UsageError& e) {
                EXPECT_NE(std::string(e.what()).find("on rank 1: the input has nan at [1]"), std::string::npos)
                    << e.what();
                EXPECT_EQ(std::string(e.what()).find("rank 1 refused its call") != std::string::npos, group.rank() == 0)
                    << e.what();
              }
              group.barrier();
            },
            {.check_nan = true});
}

TEST(ProcessGroup, LeavesItsLastCallsInAFileWhenItFails) {
  const auto results = run_forked(2, [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) raise(SIGKILL);
    group.barrier();
  });
  const std::string& text = results[0].error;
  EXPECT_NE(text.find("the last calls are in "), std::string::npos) << text;
}

TEST(ProcessGroup, StaysUsableAfterAMismatch) {
  run_both(3, [](ProcessGroup& group) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THROW(group.all_reduce(Tensor::empty({group.rank() == 1 ? 5 : 4})), UsageError);
      const Tensor one = Tensor::of<float>({1});
      group.all_reduce(one);
      TUTTI_CHECK(one.item() == 3, "the sum is {}", one.item());
    }
  });
}

TEST(ProcessGroup, SplitsThatDoNotFitNameBothRanks) {
  run_both(3, [](ProcessGroup& group) {
    std::vector<int64_t> splits = {1, 1, 1}, takes = splits;
    if (group.rank() == 2) splits = {2, 1, 0};
    try {
      group.all_to_all_v_single(Tensor::empty({3}), Tensor::empty({3}), takes, splits);
      TUTTI_CHECK(false, "nothing was thrown");
    } catch (const UsageError& e) {
      TUTTI_CHECK(std::string(e.what()).find("rank 2 sends 8 bytes to rank 0, which expects 4") != std::string::npos,
                  "{}", e.what());
    }
    group.barrier();
  });
}

TEST(ProcessGroup, NamesAKilledRankAndTheCall) {
  const auto results = run_forked(4, [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 2) raise(SIGKILL);
    group.all_reduce(Tensor::of<float>({1, 2}));
  });
  for (const int r : {0, 1, 3}) {
    const std::string& text = results[static_cast<size_t>(r)].error;
    EXPECT_NE(text.find("rank 2 (pid "), std::string::npos) << text;
    EXPECT_NE(text.find("died"), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce #2 of group '0'"), std::string::npos) << text;
  }
}

TEST(ProcessGroup, NamesARankThatLeavesEarly) {
  const auto results = run_forked(3, [](ProcessGroup& group) {
    if (group.rank() != 1) group.barrier();
  });
  for (const int r : {0, 2}) {
    EXPECT_NE(results[static_cast<size_t>(r)].error.find("rank 1 (pid "), std::string::npos)
        << results[static_cast<size_t>(r)].error;
    EXPECT_NE(results[static_cast<size_t>(r)].error.find("left the group"), std::string::npos)
        << results[static_cast<size_t>(r)].error;
  }
}

TEST(ProcessGroup, ADeadlineNamesTheLateRankAndWhatItDoes) {
  run_ranks(3, [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) {
      while (group.health().ok) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    try {
      group.all_reduce(Tensor::of<float>({1}), ReduceKind::sum, {.timeout = std::chrono::milliseconds(100)});
      FAIL();
    } catch (const EnvironmentError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("rank 1 (pid"), std::string::npos) << text;
      EXPECT_NE(text.find("#2"), std::string::npos) << text;
      EXPECT_NE(text.find("its last call was #1, barrier()"), std::string::npos) << text;
    }
  });
}

TEST(ProcessGroup, SplitKeepsTheGivenOrder) {
  run_ranks(4, [](ProcessGroup& group) {
    const std::vector<int> mine = group.rank() < 2 ? std::vector<int>{1, 0} : std::vector<int>{2, 3};
    const auto part = group.split(mine);
    ASSERT_EQ(part->size(), 2);
    EXPECT_EQ(part->rank(), group.rank() < 2 ? 1 - group.rank() : group.rank() - 2);
    int64_t value = group.rank();
    part->all_reduce_values<int64_t>({&value, 1});
    EXPECT_EQ(value, group.rank() < 2 ? 1 : 5);
    EXPECT_EQ(group.split({}), nullptr);
    EXPECT_THROW(group.split({(group.rank() + 1) % 4}), UsageError);
  });
}

TEST(ProcessGroup, OnlyMembersMakeANewGroup) {
  run_ranks(4, [](ProcessGroup& group) {
    if (group.rank() != 1) {
      const auto part = new_group({3, 0, 2});
      int64_t value = 1 << group.rank();
      part->all_reduce_values<int64_t>({&value, 1});
      EXPECT_EQ(value, 13);
      EXPECT_EQ(part->world_rank(), group.rank());
      EXPECT_EQ(part->group_rank_of(3), 0);
    } else {
      EXPECT_THROW(new_group({0, 2}), UsageError);
    }
    group.barrier();
  });
}

TEST(ProcessGroup, ATransportIsNamedPerKindOfDevice) {
  const auto complaint = [](const std::string& transport) {
    try {
      run_ranks(1, [](ProcessGroup&) {}, {.transport = transport});
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(complaint("cpu:threads"), "");
  EXPECT_NE(complaint("cpu:threads,cpu:shm").find("one name per device kind"), std::string::npos)
      << complaint("cpu:threads,cpu:shm");
  EXPECT_NE(complaint("threads,cuda:gloo").find("legal: nccl"), std::string::npos) << complaint("threads,cuda:gloo");
  EXPECT_NE(complaint("treads").find("did you mean 'threads'"), std::string::npos) << complaint("treads");
}

TEST(ProcessGroup, TwoThreadsOnOneGroupAndOnTwo) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto other = group.split({0, 1});
    RankContext& context = RankContext::current();
    std::jthread second([&] {
      const RankContext::Scope scope(context);
      for (int i = 0; i < 50; ++i) {
        int64_t value = i;
        other->all_reduce_values<int64_t>({&value, 1});
        ASSERT_EQ(value, 2 * i);
      }
    });
    std::vector<Work> works;
    std::vector<Tensor> tensors;
    for (int i = 0; i < 50; ++i) {
      tensors.push_back(Tensor::of<int64_t>({i}));
      works.push_back(group.all_reduce(tensors.back(), ReduceKind::sum, {.async = true}));
    }
    std::jthread third([&] {
      const RankContext::Scope scope(context);
      for (Work& work : works) work.wait();
    });
    for (size_t i = works.size(); i-- > 0;) works[i].wait();
    for (int i = 0; i < 50; ++i) ASSERT_EQ(tensors[static_cast<size_t>(i)].item_int(), 2 * i);
  });
}

TEST(MonitoredBarrier, NamesTheRanksThatDoNotCome) {
  std::atomic<int> done{0};
  run_ranks(4, [&](ProcessGroup& group) {
    group.monitored_barrier(std::chrono::seconds(20));
    if (group.rank() % 2 == 1) {
      while (done < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    try {
      group.monitored_barrier(std::chrono::milliseconds(50), true);
      FAIL();
    } catch (const TimeoutError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("rank 1 (pid "), std::string::npos) << text;
      EXPECT_EQ(text.find("rank 3 (pid ") != std::string::npos, group.rank() == 0) << text;
    }
    ++done;
  });
}

}  // namespace
}  // namespace tutti::comm

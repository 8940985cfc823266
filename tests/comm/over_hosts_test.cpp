// Collectives over several hosts: the bits of one host, and the bytes that the formulas of exchanges/over_hosts.h give.
#include "tutti/comm/exchanges/over_hosts.h"

#include <gtest/gtest.h>

#include "tests/comm/support/local_hosts.h"
#include "tests/support/same_bits.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transport_backend.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::comm {
namespace {

std::vector<int> placement(int hosts, int per_host) {
  std::vector<int> of_rank;
  for (int r = 0; r < hosts * per_host; ++r) of_rank.push_back(r / per_host);
  return of_rank;
}

// Runs fn with each rank's backend over the hosts; returns the bytes that the outer transport was offered.
int64_t on_hosts(const Hosts& hosts, const std::function<void(TransportBackend&)>& fn) {
  const auto before = hosts.bytes_between->load();
  run_ranks(hosts.size(), [&](ProcessGroup& group) {
    TransportBackend backend(hosts.make()(group.rank()), {});
    fn(backend);
    backend.run({.kind = CollectiveKind::barrier});
  });
  return hosts.bytes_between->load() - before;
}

Tensor values(int rank, int64_t count, DType dtype) {
  return facets::sample_tensor(static_cast<uint64_t>(rank) + 1, {count}, dtype, -3, 3);
}

TEST(EvenHosts, AreConsecutiveRanksInEqualNumbers) {
  const auto layout = even_hosts(placement(2, 4));
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->hosts, 2);
  EXPECT_EQ(layout->per_host, 4);
  EXPECT_TRUE(layout->are_nodes());
  EXPECT_FALSE(even_hosts(placement(3, 2))->are_nodes());
  for (const std::vector<int>& other :
       {std::vector<int>{}, {0}, {0, 0}, {0, 1}, {0, 0, 1}, {0, 1, 0, 1}, {0, 0, 1, 1, 0, 0}, {0, 0, 1, 2}})
    EXPECT_FALSE(even_hosts(other).has_value()) << testing::PrintToString(other);
}

// The nodes of a halving tree over all ranks, split until each is one host or within one.
void add_nodes(int begin, int end, std::vector<std::pair<int, int>>& nodes) {
  nodes.emplace_back(begin, end);
  if (end - begin < 2) return;
  const int middle = begin + (end - begin + 1) / 2;
  add_nodes(begin, middle, nodes);
  add_nodes(middle, end, nodes);
}

TEST(EvenHosts, AreNodesWhenTheTreeOverRanksSaysSo) {
  for (int hosts = 2; hosts <= 9; ++hosts) {
    for (int per_host = 2; per_host <= 6; ++per_host) {
      std::vector<std::pair<int, int>> nodes;
      add_nodes(0, hosts * per_host, nodes);
      bool all = true;
      for (int h = 0; h < hosts; ++h)
        all &= std::ranges::count(nodes, std::pair{h * per_host, (h + 1) * per_host}) == 1;
      EXPECT_EQ((HostLayout{hosts, per_host}.are_nodes()), all) << hosts << " hosts of " << per_host;
    }
  }
}

struct Case {
  int hosts, per_host;
};
const Case kCases[] = {{2, 2}, {2, 3}, {4, 2}, {3, 2}};

TEST(OverHosts, EveryReductionHasTheBitsOfOneHost) {
  constexpr int64_t kCount = 9'001;
  for (const auto& [hosts, per_host] : kCases) {
    const int ranks = hosts * per_host;
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
      for (int k = 0; k < kNumReduceKinds; ++k) {
        const auto kind = static_cast<ReduceKind>(k);
        if (!why_not_reducible(kind, dtype).empty()) continue;
        const auto op_of = [&](int rank) {
          return kind == ReduceKind::premul_sum ? ReduceOp::premul_sum(0.25 + rank) : ReduceOp(kind);
        };
        std::vector<Tensor> reduced(static_cast<size_t>(ranks)), scattered(static_cast<size_t>(ranks));
        run_ranks(ranks, [&](ProcessGroup& group) {
          const auto r = static_cast<size_t>(group.rank());
          reduced[r] = values(group.rank(), kCount, dtype);
          group.all_reduce(reduced[r], op_of(group.rank()));
          scattered[r] = Tensor::empty({kCount}, dtype);
          group.reduce_scatter_single(scattered[r], values(group.rank(), kCount * ranks, dtype), op_of(group.rank()));
        });
        on_hosts(Hosts(placement(hosts, per_host)), [&](TransportBackend& b) {
          const std::string where = fmt::format("{} of {} over {} hosts of {}, rank {}", name_of(kind), name_of(dtype),
                                                hosts, per_host, b.rank());
          const Tensor own = values(b.rank(), kCount, dtype), part = Tensor::empty({kCount}, dtype),
                       whole = values(b.rank(), kCount * ranks, dtype);
          b.run({.kind = CollectiveKind::all_reduce, .outputs = {&own, 1}, .reduce = op_of(b.rank())});
          expect_same_bits(own, reduced[static_cast<size_t>(b.rank())], where);
          b.run({.kind = CollectiveKind::reduce_scatter_single,
                 .outputs = {&part, 1},
                 .inputs = {&whole, 1},
                 .reduce = op_of(b.rank())});
          expect_same_bits(part, scattered[static_cast<size_t>(b.rank())], where + ", scattered");
        });
      }
    }
  }
}

TEST(OverHosts, AllGatherPassesEverySliceOn) {
  constexpr int64_t kCount = 30'001;
  for (const auto& [hosts, per_host] : kCases) {
    const int ranks = hosts * per_host;
    on_hosts(Hosts(placement(hosts, per_host)), [&](TransportBackend& b) {
      for (const bool in_place : {false, true}) {
        const Tensor output = Tensor::empty({kCount * ranks}, DType::f32);
        const Tensor slice = output.view_as({kCount}, {1}, b.rank() * kCount),
                     input = in_place ? slice : Tensor::empty({kCount}, DType::f32);
        std::memcpy(input.raw_data(), values(b.rank(), kCount, DType::f32).raw_data(), kCount * sizeof(float));
        b.run({.kind = CollectiveKind::all_gather_single, .outputs = {&output, 1}, .inputs = {&input, 1}});
        for (int r = 0; r < ranks; ++r)
          expect_same_bits(output.view_as({kCount}, {1}, r * kCount), values(r, kCount, DType::f32),
                           fmt::format("slice {} on rank {}", r, b.rank()));
      }
    });
  }
}

TEST(OverHosts, CoalescedCallsTakeTheSameWay) {
  const Hosts hosts(placement(2, 2));
  on_hosts(hosts, [&](TransportBackend& b) {
    const std::vector<Tensor> tensors = {values(b.rank(), 20'000, DType::f32), values(b.rank(), 3, DType::bf16),
                                         values(b.rank() + 7, 50'000, DType::bf16)};
    std::vector<Tensor> single;
    for (const Tensor& t : tensors) {
      single.push_back(Tensor::empty(t.extents(), t.dtype()));
      std::memcpy(single.back().raw_data(), t.raw_data(), static_cast<size_t>(t.nbytes()));
      b.run({.kind = CollectiveKind::all_reduce, .outputs = {&single.back(), 1}});
    }
    b.run({.kind = CollectiveKind::all_reduce_coalesced, .outputs = tensors});
    for (size_t i = 0; i < tensors.size(); ++i) expect_same_bits(tensors[i], single[i], fmt::format("tensor {}", i));
  });
}

TEST(OverHosts, AMismatchIsNamedOnAllRanks) {
  const Hosts hosts(placement(2, 2));
  std::atomic<int> named = 0;
  on_hosts(hosts, [&](TransportBackend& b) {
    const Tensor own = values(b.rank(), b.rank() == 2 ? 50'000 : 40'000, DType::f32);
    try {
      b.run({.kind = CollectiveKind::all_reduce, .outputs = {&own, 1}});
    } catch (const UsageError& error) {
      EXPECT_SAYS(error.what(), "shapes differ", "rank 2 called");
      ++named;
    }
  });
  EXPECT_EQ(named, 4);
}

// Each round between hosts has a line of 64 bytes for each rank elsewhere; the rest are elements.
TEST(OverHosts, BytesBetweenHostsAreThoseOfTheFormula) {
  constexpr int kHosts = 2, kPerHost = 4, kRanks = kHosts * kPerHost;
  constexpr int64_t kLine = 64, kLines = kLine * kRanks * (kRanks - kPerHost), kCount = 1 << 20, kBytes = kCount * 4;
  const auto elements = [&](int64_t rounds, const std::function<void(TransportBackend&)>& fn) {
    return (on_hosts(Hosts(placement(kHosts, kPerHost)), fn) - (rounds + 1) * kLines) /
           kHosts;  // and the barrier; per host
  };
  EXPECT_EQ(elements(4,
                     [&](TransportBackend& b) {
                       const Tensor x = values(b.rank(), kCount, DType::f32);
                       b.run({.kind = CollectiveKind::all_reduce, .outputs = {&x, 1}});
                     }),
            2 * kBytes * (kHosts - 1) / kHosts);
  EXPECT_EQ(
      elements(kHosts + 1,
               [&](TransportBackend& b) {
                 const Tensor x = values(b.rank(), kCount, DType::f32),
                              slice = Tensor::empty({kCount / kRanks}, DType::f32);
                 b.run({.kind = CollectiveKind::reduce_scatter_single, .outputs = {&slice, 1}, .inputs = {&x, 1}});
               }),
      kBytes * (kHosts - 1) / kHosts);
  EXPECT_EQ(elements(kHosts,
                     [&](TransportBackend& b) {
                       const Tensor slice = values(b.rank(), kCount / kRanks, DType::f32),
                                    x = Tensor::empty({kCount}, DType::f32);
                       b.run({.kind = CollectiveKind::all_gather_single, .outputs = {&x, 1}, .inputs = {&slice, 1}});
                     }),
            kBytes / kRanks * kPerHost * (kHosts - 1));
}

}  // namespace
}  // namespace tutti::comm

// set_reduce_scatter_max_input_buffers: a queue of buckets on their way, its waits, its memory and what a trace shows
// of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/delayed_transport.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/use_sink.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/dist/wrapper.h"
#include "tutti/nn/module.h"
#include "tutti/ops/creation.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/size_class.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kBuckets = 8, kRows = 600, kColumns = 100;

// Parameters of which a bucket takes one: two of them are more than it may have.
struct Weights final : nn::Module {
  Weights() {
    for (int i = 0; i < kBuckets; ++i)
      all.push_back(register_parameter(fmt::format("weight_{}", i), {kRows, kColumns}, nn::Init::ones()));
  }
  std::vector<nn::Parameter> all;
};

// What PyTorch's pull request 186000 says, for `buckets` that start one after the other: while the queue has K, the
// oldest is waited for and leaves.
struct Simulated {
  size_t waits = 0, most = 0;
};
Simulated simulate(int64_t buckets, size_t k) {
  Simulated s;
  std::deque<int64_t> queue;
  for (int64_t b = 0; b < buckets; ++b) {
    while (queue.size() >= k) {
      queue.pop_front();
      ++s.waits;
    }
    queue.push_back(b);
    s.most = std::max(s.most, queue.size());
  }
  return s;
}

float value_of(int64_t shard, int64_t parameter, int64_t i) {
  return static_cast<float>((shard * 37 + parameter * 11 + i * 7) % 101 - 50) * 0.37F;
}

void deliver(const Shard& shard) {
  for (int64_t p = kBuckets; p-- > 0;) {
    const MemoryCategoryScope category(MemoryCategory::gradients);
    const Tensor g = Tensor::empty({kRows, kColumns});
    for (int64_t i = 0; i < g.numel(); ++i) g.data<float>()[i] = value_of(shard.index(), p, i);
    shard.sink()->use(static_cast<int32_t>(p), 0, g);
    shard.sink()->finished(static_cast<int32_t>(p));
  }
}

struct Rank {
  explicit Rank(comm::ProcessGroup& group) : Rank(group, dist::mesh_from_group(group.shared_from_this(), "cpu")) {}
  Rank(comm::ProcessGroup& group, const dist::Mesh& mesh) {
    fully_shard(model, {.mesh = mesh});
    nn::initialize(model);
    shards.emplace(std::bit_ceil(static_cast<uint64_t>(2 * group.size())), &group,
                   nn::leaves_of(model.named_parameters()), Schedule::once_a_step, Overlap::backward);
  }
  Weights model;
  std::optional<Shards> shards;
};

// The gradients that a rank has in the end, as bits.
std::vector<float> parts_of(const ShardSums& sums) {
  std::vector<float> values;
  for (const Tensor& g : sums.gradients) {
    const Tensor part = dist::part_of(g, "test").local;
    values.insert(values.end(), part.data<float>(), part.data<float>() + part.numel());
  }
  return values;
}

// Numbers of buffers over threads, and over a network, where buckets take turns in as many lanes.
std::vector<std::pair<int64_t, std::string>> ways() {
  std::vector<std::pair<int64_t, std::string>> all = {{1, ""}, {2, ""}, {4, ""}, {16, ""}};
  for (const comm::TransportInfo& transport : comm::known_transports()) {
    if (transport.name != "gloo" || !transport.available) continue;
    for (const int64_t k : {1, 2, 3, 16}) all.emplace_back(k, "gloo");
  }
  return all;
}

// Replicas of divided parameters add what they keep in groups of their own, whose calls are refused as well. With room
// for everything all buckets are on their way when the rank gives up, with room for one some are left.
TEST(InputBuffers, ARankOfReplicasThatAbandonsTheStepTellsTheOthers) {
  for (const auto& [k, transport] : ways()) {
    if (k != 1 && k != 3 && k != 16) continue;
    for (const auto& [replicas, each] : {std::pair{1, 4}, std::pair{2, 2}, std::pair{3, 2}, std::pair{2, 3}}) {
      for (const int quitter : {0, replicas * each - 1}) {
        const auto train = [&](comm::ProcessGroup& group) {
          Rank rank(group, replicas == 1 ? dist::mesh_from_group(group.shared_from_this(), "cpu")
                                         : dist::init_device_mesh("cpu", {replicas, each},
                                                                  {.names = {"dp_replicate", "dp_shard"}}));
          rank.shards->set_reduce_scatter_max_input_buffers(k);
          const auto backward = [&] {
            for (Shard& shard : rank.shards->step(0)) {
              if (shard.index() == rank.shards->local_shards().back()) group.barrier();  // which is behind the gate
              deliver(shard);
              shard.add(ones({1}));
            }
          };
          backward();
          const std::vector<float> expected = parts_of(rank.shards->finish());
          for (int step = 0; step < 2; ++step) {
            std::string text = message_of([&] {
              backward();
              if (group.rank() != quitter) rank.shards->finish();
            });
            rank.shards->abandon();
            if (group.rank() != quitter)
              TUTTI_CHECK(text.find(fmt::format("rank {} has abandoned the step", quitter)) != std::string::npos,
                          "{} x {}, K = {}: '{}'", replicas, each, k, text);
            backward();
            TUTTI_CHECK(parts_of(rank.shards->finish()) == expected, "other bits after an abandoned step");
          }
        };
        comm::run_ranks(replicas * each, train, {.transport = transport});
      }
    }
  }
}

TEST(InputBuffers, HaveTheSameBitsAndWaitAsAQueueOfThemWould) {
  for (const int ranks : {2, 3, 4}) {
    std::vector<std::vector<float>> expected(static_cast<size_t>(ranks));
    for (const auto& [k, transport] : ways()) {
      const auto train = [&](comm::ProcessGroup& group) {
        Rank rank(group);
        rank.shards->set_reduce_scatter_max_input_buffers(k);
        for (int step = 0; step < 3; ++step) {
          for (Shard& shard : rank.shards->step(0)) {
            if (step == 1 && group.rank() == 1)
              std::this_thread::sleep_for(std::chrono::milliseconds(5));  // who is late does not matter
            deliver(shard);
            shard.add(ones({1}));
          }
          std::vector<float> values = parts_of(rank.shards->finish());
          std::vector<float>& first = expected[static_cast<size_t>(group.rank())];
          if (first.empty()) first = values;
          TUTTI_CHECK(values == first, "K = {} has other bits", k);
          const EarlyBuckets seen = rank.shards->early_buckets();
          const Simulated simulated = simulate(kBuckets, static_cast<size_t>(k));
          TUTTI_CHECK(seen.all == kBuckets && seen.use.waits == simulated.waits && seen.use.most == simulated.most,
                      "K = {}: {} buckets, {} waits, {} at once; expected {} waits and {}", k, seen.all, seen.use.waits,
                      seen.use.most, simulated.waits, simulated.most);
        }
      };
      comm::run_ranks(ranks, train, {.transport = transport});
    }
  }
}

// While the other rank sends nothing, K buckets are under way: each takes what this rank sends of it, in the place of
// the gradients that it was copied from, and three parts more: the sum, and the slices of both ranks from which it is
// made.
TEST(InputBuffers, TakeTheMemoryOfOneBucketEach) {
  std::array<int64_t, 5> peaks{};
  for (int64_t k = 1; k <= 4; ++k) {
    std::atomic<bool> is_full = false;
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      Rank rank(group);
      rank.shards->set_reduce_scatter_max_input_buffers(k);
      for (Shard& shard : rank.shards->step(0)) {
        if (shard.index() == rank.shards->local_shards().back()) {
          group.barrier();  // which is behind the gate
          while (group.rank() == 1 && !is_full) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          RankContext::current().allocator().reset_peak();
        }
        deliver(shard);
        shard.add(ones({1}));
      }
      if (group.rank() == 0) {
        peaks[static_cast<size_t>(k)] = RankContext::current().allocator().statistics().peak_bytes;
        is_full = true;
      }
      rank.shards->finish();
    });
  }
  const int64_t part = block_bytes(kRows / 2 * kColumns * static_cast<int64_t>(sizeof(float)));
  for (int64_t k = 2; k <= 4; ++k) EXPECT_EQ(peaks[static_cast<size_t>(k)] - peaks[1], (k - 1) * 3 * part) << k;
}

struct Waits {
  size_t count = 0;
  double ms = 0;
};
Waits waits_in(const Trace& trace) {
  Waits waits;
  for (const TraceHarvest::Thread& thread : trace.threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      if (event.name == nullptr || std::string_view(event.name) != "FSDP::post_backward_rs_wait") continue;
      ++waits.count;
      waits.ms += static_cast<double>(event.end_ns - event.begin_ns) / 1e6;
    }
  }
  return waits;
}

// Rounds of 4 ms: with one buffer every bucket but the first waits for one, with as many as buckets none does.
TEST(InputBuffers, TheirWaitsStandInATraceOverASlowTransport) {
  for (const int64_t k : {1, 2, 8}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const auto slow = bench::delayed_group(group, {.latency = std::chrono::milliseconds(4)});
      Rank rank(*slow);
      rank.shards->set_reduce_scatter_max_input_buffers(k);
      Profiler profiler;
      TUTTI_CHECK(profiler.start({.filter = TraceFilter::this_rank, .memory = false}).ok(), "no session");
      for (Shard& shard : rank.shards->step(0)) {
        deliver(shard);
        shard.add(ones({1}));
      }
      rank.shards->finish();
      profiler.stop();
      const Waits waits = waits_in(profiler.trace());
      const Simulated simulated = simulate(kBuckets, static_cast<size_t>(k));
      TUTTI_CHECK(waits.count == simulated.waits, "K = {}: {} waits in the trace; expected {}", k, waits.count,
                  simulated.waits);
      // How long they take depends on how far a slow machine has come meanwhile.
      if (k == 1) TUTTI_CHECK(waits.ms > 0, "{} waits take {} ms", waits.count, waits.ms);
    });
  }
}

// Four rounds of 50 ms each in four lanes end when one of them does, and one after the other in one lane. A machine
// that does other things may be late, but hardly three times.
TEST(InputBuffers, TravelInLanesThatWaitAtTheSameTime) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    const auto slow = bench::delayed_group(group, {.latency = std::chrono::milliseconds(50)});
    const auto time_of = [&](size_t lanes) {
      const std::vector<comm::ProcessGroup*> all = slow->lanes(lanes);
      TUTTI_CHECK(all.size() == lanes, "{} lanes", all.size());
      slow->barrier();
      std::vector<Tensor> sums;
      std::vector<comm::Work> works;
      const auto begin = std::chrono::steady_clock::now();
      for (size_t i = 0; i < 4; ++i) {
        sums.push_back(ones({8}));
        works.push_back(all[i % lanes]->all_reduce(sums[i], {}, {.async = true}));
      }
      for (const comm::Work& work : works) work.wait();
      for (const Tensor& sum : sums) TUTTI_CHECK(sum.data<float>()[0] == 2.0F, "another sum");
      return std::chrono::steady_clock::now() - begin;
    };
    const auto alone = time_of(1);
    TUTTI_CHECK(alone >= std::chrono::milliseconds(200), "one lane does not wait four times");
    const auto together = std::min({time_of(4), time_of(4), time_of(4)});
    TUTTI_CHECK(together < alone, "four lanes wait one after the other");
  });
}

}  // namespace
}  // namespace tutti::parallel

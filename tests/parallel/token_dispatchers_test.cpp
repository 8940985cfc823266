// Every way to bring tokens to the experts of other ranks: the bits of the local dispatcher, whatever the loads, and
// what happens to late ranks.
#include <atomic>
#include <thread>

#include "tests/parallel/support/dispatch_steps.h"
#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/parallel/dispatch_counts.h"

namespace tutti::parallel {
namespace {

class Dispatchers : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Of, Dispatchers, testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Dispatchers, HaveTheBitsOfOneRankForAnyLoad) {
  for (const int ranks : {2, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      for (const Load& load : kLoads) expect_bits_of_local(world, GetParam(), load);
    });
  }
}

// ---- late ranks
// ---------------------------------------------------------------------------------------------------------------

// Two layers, where one rank comes late to every move and every read in turn.
bool has_bits_of_local_when_late(ExpertExchange exchange, const ExpertMemory::Options& options, bool recomputes) {
  std::atomic<bool> same = true;
  comm::run_ranks(3, [&](comm::ProcessGroup& all) {
    const auto world = all.split(all.rank() == 2 ? std::vector<int>{2} : std::vector<int>{0, 1}, {.name = "pair"});
    if (all.rank() == 2) return;
    const TokenGrainScope grain(4);
    const Load& load = kLoads[0];
    const int64_t tokens = 8, own = kExperts / 2;
    const nn::Routing routing = routing_of(load, tokens);
    const auto memory = memory_of(*world, exchange, options);
    const auto first = dispatcher_of(*world, exchange, memory), second = dispatcher_of(*world, exchange, memory);
    Experts all_of_first(0, kExperts, DType::f32), all_of_second(0, kExperts, DType::f32),
        part_of_first(world->rank() * own, own, DType::f32), part_of_second(world->rank() * own, own, DType::f32);
    const auto run = [&](const nn::TokenDispatcher& one, Experts& experts_of_one, const nn::TokenDispatcher& two,
                         Experts& experts_of_two, int late) {
      const auto pause = [=, &world] {
        if (late == world->rank()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      };
      const auto layer = [&routing, pause](const nn::TokenDispatcher& dispatcher, Experts& experts) {
        return [&routing, &dispatcher, &experts, pause](std::span<const Tensor> in) {
          const nn::Dispatched d = dispatcher.dispatch(in[0], routing, in[0].size(0));
          pause();
          const Tensor y = experts.module.forward(d.experts);
          if (requires_grad(y)) register_hook(y, [pause](const Tensor&) { return pause(), Tensor(); });
          const Tensor z = dispatcher.combine(y, d, routing);
          if (requires_grad(z)) register_hook(z, [pause](const Tensor&) { return pause(), Tensor(); });
          return z;
        };
      };
      const Tensor x = requires_grad_(facets::sample_tensor(static_cast<uint64_t>(world->rank()) + 1, {tokens, kDim}));
      const auto through = [&](auto fn, const Tensor& in) {
        return recomputes ? checkpoint(fn, std::span(&in, 1)) : fn(std::span(&in, 1));
      };
      const Tensor y = through(layer(two, experts_of_two), through(layer(one, experts_of_one), x));
      backward(y, facets::sample_tensor(77, {tokens, kDim}));
      return Results{elements_of(y), elements_of(grad_of(x))};
    };
    const nn::LocalDispatcher here;
    const Results local = run(here, all_of_first, here, all_of_second, -1);
    for (int time = 0; time < 4; ++time) {
      const Results found = run(*first, part_of_first, *second, part_of_second, time % 2);
      if (!have_same_bits(found[0], local[0]) || !have_same_bits(found[1], local[1])) same = false;
    }
  });
  return same;
}

TEST(LateRanks, OvertakeNobodyWhoStillReads) {
  for (const ExpertExchange exchange : {ExpertExchange::direct_store, ExpertExchange::gather_on_read}) {
    for (const bool recomputes : {false, true})
      EXPECT_TRUE(has_bits_of_local_when_late(exchange, {.poisons = true}, recomputes))
          << static_cast<int>(exchange) << recomputes;
  }
}

// With one buffer for both ways of gradients, a rank that is early stores into what a late one still reads, or poisons
// after it. ThreadSanitizer reports exactly that, and nothing in the test above.
TEST(LateRanks, AreOvertakenWithOneBufferTooFew) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the race is what it is about";
#endif
  bool is_overtaken = false;
  for (int tries = 0; tries < 10 && !is_overtaken; ++tries)
    is_overtaken =
        !has_bits_of_local_when_late(ExpertExchange::direct_store, {.poisons = true, .backward_buffers = 1}, false);
  EXPECT_TRUE(is_overtaken);
}

// ---- what they do, and what they refuse
// -----------------------------------------------------------------------------------------------

TEST(DispatchCounts, AreThoseOfTheAlgorithm) {
  comm::run_ranks(2, [](comm::ProcessGroup& world) {
    const TokenGrainScope grain(4);
    Experts part(world.rank() * kExperts / 2, kExperts / 2, DType::f32);
    for (const ExpertExchange exchange : {ExpertExchange::direct_store, ExpertExchange::gather_on_read}) {
      const auto dispatcher = dispatcher_of(world, exchange);
      step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
      DispatchCounts& counts = dispatch_counts();
      const int64_t barriers = counts.barriers, moves = counts.moves, bytes = counts.moved_bytes;
      step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
      EXPECT_EQ(counts.barriers - barriers, 5) << "two of the dispatch, one of each other move";
      // Half of the 16 rows go to the other rank.
      const int64_t row = 8 * kDim * 4;
      const bool reads = exchange == ExpertExchange::gather_on_read;
      EXPECT_EQ(counts.moves - moves, reads ? 8 : 4);
      EXPECT_EQ(counts.moved_bytes - bytes, reads ? 7 * row : 4 * row + 8 * 8);
    }
    EXPECT_EQ(dispatch_counts().memory_bytes, 0) << "of dispatchers that are gone";
  });
}

// A second forward takes the buffers of the layer while the first one waits for its backward.
TEST(SharedDispatchers, SayWhenABackwardComesTooLate) {
  comm::run_ranks(2, [](comm::ProcessGroup& world) {
    const TokenGrainScope grain(4);
    const auto dispatcher = dispatcher_of(world, ExpertExchange::direct_store);
    Experts part(world.rank() * kExperts / 2, kExperts / 2, DType::f32);
    const nn::Routing routing = routing_of(kLoads[0], 8);
    const auto forward = [&] {
      const Tensor x = requires_grad_(facets::sample_tensor(1, {8, kDim}));
      const nn::Dispatched d = dispatcher->dispatch(x, routing, x.size(0));
      return dispatcher->combine(part.module.forward(d.experts), d, routing);
    };
    const Tensor first = forward(), second = forward();
    EXPECT_NE(
        message_of([&] { backward(first, full_like(first, 1.0)); }).find("was changed in place after the forward"),
        std::string::npos);
  });
}

}  // namespace
}  // namespace tutti::parallel

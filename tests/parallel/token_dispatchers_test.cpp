// Every way to bring tokens to the experts of other ranks: the bits of the local dispatcher, whatever the loads, and what happens to late and dead ranks.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"
#include "tutti/job/errors.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/dispatch_counts.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/shared_dispatchers.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kExperts = 8, kDim = 6, kHidden = 4, kMost = 12;

// Which experts the tokens of each rank choose.
struct Load {
  const char* name;
  std::vector<int64_t> tokens;  // of each rank, in turns
  int64_t slots = 2;
  int64_t (*expert)(int64_t token, int64_t slot) = nullptr;
};

const Load kLoads[] = {
    {"Even", {8}, 2, [](int64_t t, int64_t k) { return (3 * t + k) % kExperts; }},
    {"UnevenTokens", {12, 5, 8, 1}, 3, [](int64_t t, int64_t k) { return (t * t + 2 * k) % kExperts; }},
    {"RanksWithoutTokens", {0, 7, 0, 12}, 2, [](int64_t t, int64_t k) { return (5 * t + 3 * k) % kExperts; }},
    {"AllToOneExpert", {12}, 1, [](int64_t, int64_t) { return int64_t{5}; }},
    {"EmptyExperts", {12, 3}, 2, [](int64_t t, int64_t k) { return 2 * ((t + k) % 2) + 4 * k; }},
    {"NoTokens", {0}, 2, [](int64_t, int64_t) { return int64_t{0}; }},
};

nn::Routing routing_of(const Load& load, int64_t tokens) {
  std::vector<int64_t> ids, counts(kExperts, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < load.slots; ++k) ++counts[static_cast<size_t>(ids.emplace_back(load.expert(t, k)))];
  }
  return {facets::sample_tensor(9, {tokens, load.slots}, DType::f32, 0.1, 0.9), Tensor::of(ids, {tokens, load.slots}), Tensor::of(counts)};
}

std::vector<float> values_of(const Tensor& t) {
  const NoGradScope no_grad;
  const Tensor whole = to_contiguous(cast(t, DType::f32));
  return {whole.data<float>(), whole.data<float>() + whole.numel()};
}

bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) { return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0); }

// The weights of experts [first, first + count).
struct Experts {
  Experts(int64_t first, int64_t count, DType dtype) : module(count, kDim, kHidden, nn::Init::zeros()) {
    uint64_t seed = 20;
    for (nn::Parameter* p : {&module.w1, &module.w2, &module.w3}) {
      Extents sizes = p->sizes();
      sizes[0] = kExperts;
      p->set_master(to_contiguous(narrow(facets::sample_tensor(seed++, sizes), 0, first, count)));
    }
    if (dtype != DType::f32) module.to(dtype);
  }
  nn::GroupedExperts module;
};

enum class Mode { eager, recomputed, compiled, compiled_recomputed };

// Outputs, and gradients of tokens and scores, then those of the experts.
using Results = std::vector<std::vector<float>>;

Results step(const nn::TokenDispatcher& dispatcher, Experts& experts, const Load& load, int64_t tokens, uint64_t seed, DType dtype, Mode mode) {
  const nn::Routing routing = routing_of(load, tokens);
  const Tensor x = requires_grad_(cast(facets::sample_tensor(seed, {tokens, kDim}), dtype)), weights = requires_grad_(routing.weights_TK);
  const auto layer = [&](std::span<const Tensor> in) {
    const nn::Routing here{in[1], in[2], in[3]};
    const nn::Dispatched dispatched = dispatcher.dispatch(in[0], here);
    return dispatcher.combine(experts.module.forward(dispatched.experts), dispatched, here);
  };
  const auto forward = [&](const Tensor& x, const Tensor& weights, const Tensor& ids, const Tensor& counts) {
    const Tensor in[] = {x, weights, ids, counts};
    return mode == Mode::recomputed || mode == Mode::compiled_recomputed ? checkpoint(layer, in) : layer(in);
  };
  for (nn::Parameter* p : {&experts.module.w1, &experts.module.w2, &experts.module.w3}) set_grad(p->leaf(), {});
  Tensor y;
  if (mode == Mode::eager || mode == Mode::recomputed) {
    y = forward(x, weights, routing.expert_ids_TK, routing.tokens_per_expert_E);
  } else {
    const auto compiled = compile(forward, {.name = "layer"});
    y = compiled(x, weights, routing.expert_ids_TK, routing.tokens_per_expert_E);
    y = compiled(x, weights, routing.expert_ids_TK, routing.tokens_per_expert_E);  // from the graph
  }
  backward(y, cast(facets::sample_tensor(77, {tokens, kDim}), y.dtype()));
  Results results{values_of(y), values_of(grad_of(x)), values_of(grad_of(weights))};
  for (nn::Parameter* p : {&experts.module.w1, &experts.module.w2, &experts.module.w3}) results.push_back(values_of(grad_of(p->leaf())));
  return results;
}

std::shared_ptr<ExpertMemory> memory_of(comm::ProcessGroup& world, ExpertExchange exchange, ExpertMemory::Options options = {.poisons = true}) {
  options.reads_tokens = exchange == ExpertExchange::gather_on_read;
  return std::make_shared<ExpertMemory>(world.shared_from_this(), kExperts, options);
}

std::unique_ptr<nn::TokenDispatcher> dispatcher_of(comm::ProcessGroup& world, ExpertExchange exchange, const std::shared_ptr<ExpertMemory>& memory) {
  if (exchange == ExpertExchange::direct_store) return std::make_unique<DirectStoreDispatcher>(memory, kMost);
  if (exchange == ExpertExchange::gather_on_read) return std::make_unique<GatherOnReadDispatcher>(memory, kMost);
  return std::make_unique<ExchangeDispatcher>(world.shared_from_this(), kExperts, ExpertParallelOptions{.max_tokens = kMost, .exchange = exchange});
}
bool shares_memory(ExpertExchange exchange) { return exchange >= ExpertExchange::direct_store; }
std::unique_ptr<nn::TokenDispatcher> dispatcher_of(comm::ProcessGroup& world, ExpertExchange exchange) {
  return dispatcher_of(world, exchange, shares_memory(exchange) ? memory_of(world, exchange) : nullptr);
}

struct Way {
  const char* name;
  ExpertExchange exchange;
  Mode mode = Mode::eager;
  DType dtype = DType::f32;
};

constexpr Way kWays[] = {
    {"Exact", ExpertExchange::standard_exact},
    {"ExactRecomputedInBf16", ExpertExchange::standard_exact, Mode::recomputed, DType::bf16},
    {"Store", ExpertExchange::direct_store},
    {"StoreInBf16", ExpertExchange::direct_store, Mode::eager, DType::bf16},
    {"StoreRecomputed", ExpertExchange::direct_store, Mode::recomputed},
    {"StoreCompiled", ExpertExchange::direct_store, Mode::compiled},
    {"StoreCompiledRecomputed", ExpertExchange::direct_store, Mode::compiled_recomputed},
    {"Read", ExpertExchange::gather_on_read},
    {"ReadInBf16", ExpertExchange::gather_on_read, Mode::eager, DType::bf16},
    {"ReadRecomputed", ExpertExchange::gather_on_read, Mode::recomputed},
    {"ReadCompiled", ExpertExchange::gather_on_read, Mode::compiled},
    {"ReadCompiledRecomputed", ExpertExchange::gather_on_read, Mode::compiled_recomputed},
};

// Outputs and gradients of a rank's tokens are those of a rank that has all experts, and gradients of experts those of the exchange with worst-case room.
void expect_bits_of_local(comm::ProcessGroup& world, const Way& way, const Load& load) {
  const TokenGrainScope grain(4);
  const int64_t tokens = load.tokens[static_cast<size_t>(world.rank()) % load.tokens.size()], own = kExperts / world.size();
  const auto seed = static_cast<uint64_t>(world.rank()) + 1;
  Experts all(0, kExperts, way.dtype), part(world.rank() * own, own, way.dtype);
  const Results local = step(nn::LocalDispatcher(), all, load, tokens, seed, way.dtype, Mode::eager);
  const Results exchanged = step(*dispatcher_of(world, ExpertExchange::standard), part, load, tokens, seed, way.dtype, Mode::eager);
  const auto dispatcher = dispatcher_of(world, way.exchange);
  for (int again = 0; again < 3; ++again) {
    const Results found = step(*dispatcher, part, load, tokens, seed, way.dtype, way.mode);
    const char* const names[] = {"outputs", "token gradients", "score gradients", "gradients of w1", "gradients of w2", "gradients of w3"};
    for (size_t i = 0; i < found.size(); ++i)
      TUTTI_CHECK(have_same_bits(found[i], i < 3 ? local[i] : exchanged[i]), "{} {}: the {} have other bits, time {}", way.name, load.name, names[i], again);
  }
}

class Dispatchers : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Of, Dispatchers, testing::ValuesIn(kWays), [](const auto& info) { return std::string(info.param.name); });

TEST_P(Dispatchers, HaveTheBitsOfOneRankForAnyLoad) {
  for (const int ranks : {2, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& world) {
      for (const Load& load : kLoads) expect_bits_of_local(world, GetParam(), load);
    });
  }
}

TEST_P(Dispatchers, HaveTheBitsOfOneRankInProcesses) {
  for (const comm::ForkedResult& rank : comm::run_world(2, [&](comm::ProcessGroup& world) { expect_bits_of_local(world, GetParam(), kLoads[1]); }))
    EXPECT_TRUE(rank.succeeded()) << rank.error;
}

// ---- late and dead ranks ---------------------------------------------------------------------------------------------------------------

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
    Experts all_of_first(0, kExperts, DType::f32), all_of_second(0, kExperts, DType::f32), part_of_first(world->rank() * own, own, DType::f32), part_of_second(world->rank() * own, own, DType::f32);
    const auto run = [&](const nn::TokenDispatcher& one, Experts& experts_of_one, const nn::TokenDispatcher& two, Experts& experts_of_two, int late) {
      const auto pause = [=, &world] {
        if (late == world->rank()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      };
      const auto layer = [&routing, pause](const nn::TokenDispatcher& dispatcher, Experts& experts) {
        return [&routing, &dispatcher, &experts, pause](std::span<const Tensor> in) {
          const nn::Dispatched d = dispatcher.dispatch(in[0], routing);
          pause();
          const Tensor y = experts.module.forward(d.experts);
          if (requires_grad(y)) register_hook(y, [pause](const Tensor&) { return pause(), Tensor(); });
          const Tensor z = dispatcher.combine(y, d, routing);
          if (requires_grad(z)) register_hook(z, [pause](const Tensor&) { return pause(), Tensor(); });
          return z;
        };
      };
      const Tensor x = requires_grad_(facets::sample_tensor(static_cast<uint64_t>(world->rank()) + 1, {tokens, kDim}));
      const auto through = [&](auto fn, const Tensor& in) { return recomputes ? checkpoint(fn, std::span(&in, 1)) : fn(std::span(&in, 1)); };
      const Tensor y = through(layer(two, experts_of_two), through(layer(one, experts_of_one), x));
      backward(y, facets::sample_tensor(77, {tokens, kDim}));
      return Results{values_of(y), values_of(grad_of(x))};
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
    for (const bool recomputes : {false, true}) EXPECT_TRUE(has_bits_of_local_when_late(exchange, {.poisons = true}, recomputes)) << static_cast<int>(exchange) << recomputes;
  }
}

// With one buffer for both ways of gradients, a rank that is early stores into what a late one still reads, or poisons after it.
TEST(LateRanks, AreOvertakenWithOneBufferTooFew) { EXPECT_FALSE(has_bits_of_local_when_late(ExpertExchange::direct_store, {.poisons = true, .backward_buffers = 1}, false)); }

TEST(DeadRanks, AreNamedToThoseThatWait) {
  for (const ExpertExchange exchange : {ExpertExchange::direct_store, ExpertExchange::gather_on_read}) {
    const auto ranks = comm::run_world(2, [&](comm::ProcessGroup& world) {
      const TokenGrainScope grain(4);
      const auto dispatcher = dispatcher_of(world, exchange);
      Experts part(world.rank() * kExperts / 2, kExperts / 2, DType::f32);
      step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
      if (world.rank() == 1) raise(SIGKILL);
      try {
        step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
      } catch (const comm::PeerError& error) {
        TUTTI_CHECK(std::string(error.what()).find("rank 1 (pid ") != std::string::npos, "{}", error.what());
        return;
      }
      throw std::logic_error("nothing was thrown");
    });
    EXPECT_TRUE(ranks[0].succeeded()) << ranks[0].error;
  }
}

// ---- what they do, and what they refuse -----------------------------------------------------------------------------------------------

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

TEST(SharedDispatchers, AreRefusedWhereMemoryIsNotShared) {
  const auto ranks = comm::run_world(
      2,
      [](comm::ProcessGroup& world) {
        const std::string said = message_of([&] { memory_of(world, ExpertExchange::direct_store); });
        TUTTI_CHECK(said.find("rows are to be stored in the memory of other ranks, which the transport gloo of group '0' does not share; use transport shm or threads, or the standard "
                              "exchange") != std::string::npos, "{}", said);
      },
      {.transport = "gloo"});
  for (const comm::ForkedResult& rank : ranks) EXPECT_TRUE(rank.succeeded()) << rank.error;
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
      const nn::Dispatched d = dispatcher->dispatch(x, routing);
      return dispatcher->combine(part.module.forward(d.experts), d, routing);
    };
    const Tensor first = forward(), second = forward();
    EXPECT_NE(message_of([&] { backward(first, full_like(first, 1.0)); }).find("was changed in place after the forward"), std::string::npos);
  });
}

}  // namespace
}  // namespace tutti::parallel

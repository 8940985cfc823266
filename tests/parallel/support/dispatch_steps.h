// A step of experts that ranks divide, by any way to bring tokens to them: what the tests of dispatchers compare.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/shared_dispatchers.h"

namespace tutti::parallel {

constexpr int64_t kExperts = 8, kDim = 6, kHidden = 4, kMost = 12;

// Which experts the tokens of each rank choose.
struct Load {
  const char* name;
  std::vector<int64_t> tokens;  // of each rank, in turns
  int64_t slots = 2;
  int64_t (*expert)(int64_t token, int64_t slot) = nullptr;
};

inline const Load kLoads[] = {
    {"Even", {8}, 2, [](int64_t t, int64_t k) { return (3 * t + k) % kExperts; }},
    {"UnevenTokens", {12, 5, 8, 1}, 3, [](int64_t t, int64_t k) { return (t * t + 2 * k) % kExperts; }},
    {"RanksWithoutTokens", {0, 7, 0, 12}, 2, [](int64_t t, int64_t k) { return (5 * t + 3 * k) % kExperts; }},
    {"AllToOneExpert", {12}, 1, [](int64_t, int64_t) { return int64_t{5}; }},
    {"EmptyExperts", {12, 3}, 2, [](int64_t t, int64_t k) { return 2 * ((t + k) % 2) + 4 * k; }},
    {"NoTokens", {0}, 2, [](int64_t, int64_t) { return int64_t{0}; }},
};

inline nn::Routing routing_of(const Load& load, int64_t tokens) {
  std::vector<int64_t> ids, counts(kExperts, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < load.slots; ++k) ++counts[static_cast<size_t>(ids.emplace_back(load.expert(t, k)))];
  }
  return {facets::sample_tensor(9, {tokens, load.slots}, DType::f32, 0.1, 0.9), Tensor::of(ids, {tokens, load.slots}),
          Tensor::of(counts)};
}

inline std::vector<float> elements_of(const Tensor& t) {
  const NoGradScope no_grad;
  const Tensor whole = to_contiguous(cast(t, DType::f32));
  return {whole.data<float>(), whole.data<float>() + whole.numel()};
}

inline bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

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

inline Results step(const nn::TokenDispatcher& dispatcher, Experts& experts, const Load& load, int64_t tokens,
                    uint64_t seed, DType dtype, Mode mode) {
  const nn::Routing routing = routing_of(load, tokens);
  const Tensor x = requires_grad_(cast(facets::sample_tensor(seed, {tokens, kDim}), dtype)),
               weights = requires_grad_(routing.weights_TK);
  const auto layer = [&](std::span<const Tensor> in) {
    const nn::Routing here{in[1], in[2], in[3]};
    const nn::Dispatched dispatched = dispatcher.dispatch(in[0], here, in[0].size(0));
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
  Results results{elements_of(y), elements_of(grad_of(x)), elements_of(grad_of(weights))};
  for (nn::Parameter* p : {&experts.module.w1, &experts.module.w2, &experts.module.w3})
    results.push_back(elements_of(grad_of(p->leaf())));
  return results;
}

inline std::shared_ptr<ExpertMemory> memory_of(comm::ProcessGroup& world, ExpertExchange exchange,
                                               ExpertMemory::Options options = {.poisons = true}) {
  options.reads_tokens = exchange == ExpertExchange::gather_on_read;
  return std::make_shared<ExpertMemory>(world.shared_from_this(), kExperts, options);
}

inline std::unique_ptr<nn::TokenDispatcher> dispatcher_of(comm::ProcessGroup& world, ExpertExchange exchange,
                                                          const std::shared_ptr<ExpertMemory>& memory) {
  if (exchange == ExpertExchange::direct_store) return std::make_unique<DirectStoreDispatcher>(memory, kMost);
  if (exchange == ExpertExchange::gather_on_read) return std::make_unique<GatherOnReadDispatcher>(memory, kMost);
  return std::make_unique<ExchangeDispatcher>(world.shared_from_this(), kExperts,
                                              ExpertParallelOptions{.max_tokens = kMost, .exchange = exchange});
}
inline bool shares_memory(ExpertExchange exchange) { return exchange >= ExpertExchange::direct_store; }
inline std::unique_ptr<nn::TokenDispatcher> dispatcher_of(comm::ProcessGroup& world, ExpertExchange exchange) {
  return dispatcher_of(world, exchange, shares_memory(exchange) ? memory_of(world, exchange) : nullptr);
}

struct Way {
  const char* name;
  ExpertExchange exchange;
  Mode mode = Mode::eager;
  DType dtype = DType::f32;
};

inline constexpr Way kWays[] = {
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

// Outputs and gradients of a rank's tokens are those of a rank that has all experts, and gradients of experts those of
// the exchange with worst-case room.
inline void expect_bits_of_local(comm::ProcessGroup& world, const Way& way, const Load& load) {
  const TokenGrainScope grain(4);
  const int64_t tokens = load.tokens[static_cast<size_t>(world.rank()) % load.tokens.size()],
                own = kExperts / world.size();
  const auto seed = static_cast<uint64_t>(world.rank()) + 1;
  Experts all(0, kExperts, way.dtype), part(world.rank() * own, own, way.dtype);
  const Results local = step(nn::LocalDispatcher(), all, load, tokens, seed, way.dtype, Mode::eager);
  const Results exchanged =
      step(*dispatcher_of(world, ExpertExchange::standard), part, load, tokens, seed, way.dtype, Mode::eager);
  const auto dispatcher = dispatcher_of(world, way.exchange);
  for (int again = 0; again < 3; ++again) {
    const Results found = step(*dispatcher, part, load, tokens, seed, way.dtype, way.mode);
    const char* const names[] = {"outputs",         "token gradients", "score gradients",
                                 "gradients of w1", "gradients of w2", "gradients of w3"};
    for (size_t i = 0; i < found.size(); ++i)
      TUTTI_CHECK(have_same_bits(found[i], i < 3 ? local[i] : exchanged[i]), "{} {}: the {} have other bits, time {}",
                  way.name, load.name, names[i], again);
  }
}

}  // namespace tutti::parallel

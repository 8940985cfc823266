// Random sequences of calls on tables that ranks divide, beside the same calls on one rank: steps, lookups in
// evaluation, abandoned steps, gradients of the weights of samples, and states that go on under other plans.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>

#include "tests/parallel/support/shared_lookups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/sum_to.h"

namespace tutti::parallel {
namespace {

// Numbers below n, the same for the same seed.
struct Drawn {
  uint64_t state;
  int64_t operator()(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(n));
  }
  template <class T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + (*this)(std::ssize(values)));
  }
};

const std::vector<nn::TableConfig> kTables = {{"a", 3, 1},   {"b", 50, 16}, {"c", 2, 17},
                                              {"d", 31, 31}, {"e", 20, 33}, {"f", 9, 64}};
const std::vector<int64_t> kLookups = {4, 0, 1, 4, 2, 3, 5, 4};  // the table of each feature

// What a sequence has besides its calls.
struct Scenario {
  explicit Scenario(uint64_t seed) {
    Drawn drawn{seed * 77777 + 3};
    for (int i = 0; i < 5; ++i) drawn(2);
    options.optimizer =
        drawn.of<TableStep>({{.optimizer = TableOptimizer::sgd, .lr = 0.1},
                             {.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::l2, .max_norm = 3},
                             {.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::global, .least_decay = 0.5},
                             {.optimizer = TableOptimizer::adam, .lr = 0.1, .weight_decay = 0.1},
                             {.optimizer = TableOptimizer::partial_rowwise_adam, .lr = 0.1},
                             {.optimizer = TableOptimizer::adagrad, .lr = 0.1}});
    options.dtype = drawn.of({DType::f32, DType::bf16, DType::f16});
    options.batch.pooling = drawn.of({TablePooling::sum, TablePooling::mean, TablePooling::none});
    options.batch.bounds = BoundsCheck::ignore;
    if (drawn(2) == 1) options.batch.output = TableOutput::bf16;
    options.features = kLookups;
    const int64_t width = drawn.of<int64_t>({33, 16, 80});
    if (options.batch.pooling == TablePooling::none)
      for (nn::TableConfig& t : tables) t.columns = width;
    own_bags = drawn(2) == 1;
    weighted = options.batch.pooling != TablePooling::none && drawn(2) == 1;
    weights_dtype = drawn.of({DType::f32, DType::bf16});
    shards = drawn.of<int64_t>({4, 8, 16});
    ranks = static_cast<int>(1 + drawn(std::min<int64_t>(shards, 6)));
    grain = drawn.of<int64_t>({128, 2, 3});
    schedule = seed % 2 == 1 ? Schedule::once_a_step : Schedule::every_round;
  }

  // Ragged, in both types of indices, dense or with gaps; some shards have no bags.
  TableBatch batch(int64_t step, int64_t shard) const {
    Drawn drawn{static_cast<uint64_t>(step * 1000 + shard * 17 + 5)};
    const bool is_empty = (shard * 7 + step) % 11 == 0, has_gaps = (shard + step) % 2 == 1;
    std::vector<int64_t> offsets = {0}, indices, bags;
    for (const int64_t table : kLookups) {
      bags.push_back(is_empty ? 0 : own_bags ? drawn(5) : 4);
      for (int64_t b = 0; b < bags.back(); ++b) {
        for (int64_t i = drawn(4); i > 0; --i)
          indices.push_back(drawn(tables[static_cast<size_t>(table)].rows + 1) - 1);
        offsets.push_back(std::ssize(indices));
      }
    }
    const auto placed = [&](const Tensor& dense) {
      if (!has_gaps) return dense;
      const Tensor wide = Tensor::empty({dense.numel(), 3}, dense.dtype());
      if (wide.numel() > 0) std::memset(wide.raw_data(), 0x7f, static_cast<size_t>(wide.nbytes()));
      const Tensor gaps = wide.view_as({dense.numel()}, {3}, 1);
      copy_(gaps, dense);
      return gaps;
    };
    const DType index = (shard + step) % 3 == 0 ? DType::i32 : DType::i64;
    const NoGradScope no_grad;
    TableBatch batch{.indices = placed(cast(Tensor::of<int64_t>(indices), index)),
                     .offsets = placed(cast(Tensor::of<int64_t>(offsets), shard % 2 == 0 ? DType::i64 : index))};
    if (weighted) {
      batch.per_sample_weights =
          placed(facets::sample_tensor(drawn.state, {std::ssize(indices)}, weights_dtype, -2, 2));
      if (weights_want_gradients(step)) requires_grad_(batch.per_sample_weights);
    }
    if (own_bags) batch.bags = bags;
    return batch;
  }
  bool weights_want_gradients(int64_t step) const { return weighted && step % 3 != 0; }
  // In each step one of the shards has no loss.
  bool has_loss(int64_t step, int64_t shard) const { return shard != step % shards; }
  static Tensor loss(const Tensor& y, int64_t step) {
    const Tensor x = cast(y, DType::f32);
    return step % 2 == 1 ? sum(mul(x, x)) : sum(mul(mul(x, x), x));
  }
  std::vector<TablePlacement> placements(Drawn& drawn) const {
    std::vector<TablePlacement> list;
    for (size_t t = 0; t < tables.size(); ++t)
      list.push_back(drawn.of({data_parallel, table_wise, column_wise, row_wise, table_row_wise}));
    return list;
  }

  std::vector<nn::TableConfig> tables = kTables;
  nn::TableBatchedOptions options;
  bool own_bags, weighted;
  DType weights_dtype;
  int64_t shards, grain;
  int ranks;
  Schedule schedule;
};

enum class Call : int64_t { step, early_step, evaluate, abandon, move };
std::vector<std::pair<Call, std::vector<TablePlacement>>> calls_of(const Scenario& scenario, uint64_t seed) {
  Drawn drawn{seed};
  std::vector<std::pair<Call, std::vector<TablePlacement>>> calls;
  for (int i = 0; i < 14; ++i) {
    const Call call =
        drawn.of({Call::step, Call::step, Call::step, Call::early_step, Call::evaluate, Call::abandon, Call::move});
    calls.emplace_back(call, scenario.placements(drawn));
  }
  return calls;
}

using ByCallAndShard = std::map<int64_t, std::map<int64_t, Tensor>>;
struct Results {
  ByCallAndShard looked_up;  // in evaluation
  ByCallAndShard gradients;  // of weights of samples
};

// In evaluation only the weights of samples want any.
bool takes_gradients(const Scenario& scenario, Call call, int64_t k, int64_t shard) {
  if (call == Call::evaluate) return scenario.weights_want_gradients(k);
  return call == Call::abandon || scenario.has_loss(k, shard);
}

nn::StateDict on_one_rank(const Scenario& scenario, uint64_t seed, Results& results) {
  seed_all(4);
  nn::TableBatchedEmbeddingBags module(scenario.tables, scenario.options);
  nn::initialize(module);
  int64_t k = 0;
  for (const auto& [call, plan] : calls_of(scenario, seed)) {
    ++k;
    if (call == Call::move) continue;
    if (call == Call::evaluate) module.eval();
    for (int64_t s = 0; s < scenario.shards; ++s) {
      const TableBatch batch = scenario.batch(k, s);
      const Tensor y = module.forward(batch, s);
      if (call == Call::evaluate) results.looked_up[k][s] = detach(y);
      if (takes_gradients(scenario, call, k, s)) backward(Scenario::loss(y, k));
      if (scenario.weights_want_gradients(k)) results.gradients[k][s] = grad_of(batch.per_sample_weights);
    }
    if (call == Call::evaluate) module.train();
    else if (call == Call::abandon) module.abandon_step();
    else module.step();
  }
  nn::StateDict state = module.state_dict();
  for (auto& entry : module.optimizer_state()) state.push_back(entry);
  return state;
}

nn::StateDict on_ranks(const Scenario& scenario, uint64_t seed, Results& results) {
  nn::StateDict state;
  std::mutex mutex;
  comm::run_ranks(scenario.ranks, [&](comm::ProcessGroup& group) {
    seed_all(4);
    const auto tables_by = [&](const std::vector<TablePlacement>& placements) {
      return std::make_unique<ShardedTables>(scenario.tables, scenario.options,
                                             plan_of(scenario.tables, scenario.options, scenario.ranks, placements),
                                             scenario.shards, &group, scenario.schedule);
    };
    Drawn first{seed + 991};
    std::unique_ptr<ShardedTables> tables = tables_by(scenario.placements(first));
    tables->initialize();
    int64_t k = 0;
    for (const auto& [call, placements] : calls_of(scenario, seed)) {
      ++k;
      if (call == Call::move) {
        const nn::StateDict whole = tables->gathered();
        tables = tables_by(placements);
        tables->load(whole);
        continue;
      }
      if (call == Call::evaluate) tables->eval();
      std::vector<TableBatch> batches;
      for (const int64_t s : tables->shards()) batches.push_back(scenario.batch(k, s));
      if (call == Call::early_step) tables->send_indices(batches);
      const std::vector<Tensor> y = call == Call::early_step ? tables->look_up() : tables->look_up(batches);
      for (size_t i = y.size(); i-- > 0;) {
        const int64_t s = tables->shards()[i];
        if (takes_gradients(scenario, call, k, s)) backward(Scenario::loss(y[i], k));
        const std::lock_guard lock(mutex);
        if (call == Call::evaluate) results.looked_up[k][s] = detach(y[i]);
        if (scenario.weights_want_gradients(k)) results.gradients[k][s] = grad_of(batches[i].per_sample_weights);
      }
      if (call == Call::evaluate) tables->train();
      else if (call == Call::abandon) tables->abandon_step();
      else tables->step();
    }
    const nn::StateDict whole = tables->gathered();
    if (group.rank() == 0) state = whole;
  });
  return state;
}

TEST(ShardedTables, AnySequenceOfCallsHasTheBitsOfOneRank) {
  for (uint64_t seed = 0; seed < 48; ++seed) {
    SCOPED_TRACE(seed);
    const Scenario scenario(seed);
    const TokenGrainScope grain(scenario.grain);
    Results expected, divided;
    const nn::StateDict one = on_one_rank(scenario, seed, expected), several = on_ranks(scenario, seed, divided);
    ASSERT_NO_FATAL_FAILURE(expect_same_state(several, one));
    for (auto [of_one, of_several] :
         {std::pair(&expected.looked_up, &divided.looked_up), std::pair(&expected.gradients, &divided.gradients)}) {
      for (const auto& [k, by_shard] : *of_one) {
        for (const auto& [s, y] : by_shard) {
          const Tensor& its = (*of_several)[k][s];
          ASSERT_EQ(its.defined(), y.defined()) << "call " << k << ", shard " << s;
          if (!y.defined()) continue;
          ASSERT_NO_FATAL_FAILURE(expect_same_bits(its, y, fmt::format("call {}, shard {}", k, s)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::parallel

#include "tutti/nn/table_batched_embedding.h"

#include <gtest/gtest.h>

#include "tests/nn/support/user_and_item_tables.h"
#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/nn/embedding.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/table_batched_weights_backward.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

TEST(TableBatchedEmbeddingBags, NamesATableAsAnEmbeddingBagOfThatNameWould) {
  struct Separate : Module {
    Child<EmbeddingBag> user{this, "user", 30, 8}, item{this, "item", 20, 5};
  } separate;
  seed_all(3);
  initialize(separate);
  const auto module = filled(options_of({}));
  const StateDict a = module->state_dict(), b = separate.state_dict();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    expect_same_bits(a[i].second, b[i].second);
  }
  EXPECT_TRUE(module->load_state_dict(b).empty());
  EXPECT_EQ(module->output_columns(), 21);
}

TEST(TableBatchedEmbeddingBags, StepsAsTheFunctionsDo) {
  const TableStep adagrad{.lr = 0.1};
  const auto module = filled(options_of(adagrad));
  std::vector<Tensor> tables = {clone(module->weight(0).master()), clone(module->weight(1).master())};
  const TableState states[] = {table_state(adagrad, 30, 8), table_state(adagrad, 20, 5)};
  for (int64_t step = 1; step < 4; ++step) {
    TableBatch batch = drawn(static_cast<uint64_t>(step));
    const Tensor y = module->forward(batch);
    backward(loss_of(y));
    module->step();
    batch.features = {0, 1, 0};
    TableStep options = adagrad;
    options.step = step;
    const TableUse use{mul(detach(y), 2.0), batch};
    expect_same_bits(detach(y), table_batched_embedding_bags(tables, batch).values);
    for (int64_t t = 0; t < 2; ++t)
      table_batched_step_(tables[static_cast<size_t>(t)], states[t], std::vector{use}, {t, {8, 5}, t == 0 ? 30 : 20},
                          options);
    for (size_t t = 0; t < 2; ++t) expect_same_bits(module->weight(t).master(), tables[t]);
  }
  EXPECT_EQ(module->steps_taken(), 3);
}

// The program of docs/embeddings.md.
Tensor sum_of_squares(const Tensor& x) { return sum(mul(x, x)); }
void train(TableBatchedEmbeddingBags& tables, const TableBatch& batch) {
  const Tensor pooled = tables.forward(batch);  // [bags, 64 + 32]
  backward(sum_of_squares(pooled));
  tables.step();
}
TEST(TableBatchedEmbeddingBags, LowersALoss) {
  TableBatchedEmbeddingBags tables({{"user", 1000, 64}, {"item", 50, 32}}, {.optimizer = TableStep{.lr = 0.05}});
  initialize(tables);
  const TableBatch batch{.indices = Tensor::of<int64_t>({7, 999, 7, 12, 3}),  // bags of "user" {7, 999} and {7},
                         .offsets = Tensor::of<int64_t>({0, 2, 3, 5, 5})};    // of "item" {12, 3} and {}
  const double before = sum_of_squares(tables.forward(batch)).item();
  tables.abandon_step();
  for (int i = 0; i < 5; ++i) train(tables, batch);
  EXPECT_LT(sum_of_squares(tables.forward(batch)).item(), before);
}

TEST(TableBatchedEmbeddingBags, HasTheGradientsOfAnEmbeddingBagOfEachFeature) {
  const int64_t bags = 300;
  TableBatch batch = drawn(11, bags);
  batch.features = {0, 1, 2};
  for (const bool weighted : {false, true}) {
    std::vector<Tensor> tables = {facets::sample_tensor(1, {20, 7}), facets::sample_tensor(2, {20, 40}),
                                  facets::sample_tensor(5, {20, 16})};
    Tensor weights = facets::sample_tensor(3, batch.indices.extents());
    for (Tensor& t : tables) requires_grad_(t);
    requires_grad_(weights);
    if (weighted) batch.per_sample_weights = weights;
    const Tensor cotangent = facets::sample_tensor(4, {bags, 63});
    backward(table_batched_embedding_bags(tables, batch).values, cotangent);
    int64_t column = 0;
    for (int64_t t = 0; t < 3; ++t) {
      const int64_t first = batch.offsets.data<int64_t>()[t * bags],
                    last = batch.offsets.data<int64_t>()[(t + 1) * bags];
      Tensor table = clone(detach(tables[static_cast<size_t>(t)])),
             part = clone(narrow(detach(weights), 0, first, last - first));
      requires_grad_(table);
      requires_grad_(part);
      const int64_t width = table.extent(1);
      backward(embedding_bag(table, narrow(batch.indices, 0, first, last - first),
                             sub(narrow(batch.offsets, 0, t * bags, bags), first),
                             {.per_sample_weights = weighted ? part : Tensor{}}),
               clone(narrow(cotangent, 1, column, width)));
      expect_same_bits(grad_of(tables[static_cast<size_t>(t)]), grad_of(table));
      if (weighted) {
        expect_same_bits(clone(narrow(grad_of(weights), 0, first, last - first)), grad_of(part));
      }
      column += width;
    }
  }
}

TEST(TableBatchedEmbeddingBags, MakesNoGradientOfFrozenTablesHoweverManyThereAre) {
  const int64_t tables = 40, bags = 3;
  std::vector<Tensor> frozen;
  for (int64_t t = 0; t < tables; ++t)
    frozen.push_back(facets::sample_tensor(static_cast<uint64_t>(t), {int64_t{1} << 14, 4}));
  TableBatch batch{.indices = zeros({tables * bags}, DType::i64),
                   .offsets = Tensor::empty({tables * bags + 1}, DType::i64),
                   .per_sample_weights = facets::sample_tensor(99, {tables * bags})};
  for (int64_t k = 0; k <= tables * bags; ++k) batch.offsets.data<int64_t>()[k] = k;
  requires_grad_(batch.per_sample_weights);
  const Tensor values = table_batched_embedding_bags(frozen, batch).values;
  const Tensor cotangent = ones({bags, 4 * tables});
  Allocator& allocator = RankContext::current().allocator();
  allocator.reset_peak();
  const int64_t before = allocator.statistics().current_bytes;
  backward(values, cotangent);
  // The gradient of one table alone takes as much.
  EXPECT_LT(allocator.statistics().peak_bytes - before, int64_t{1} << 18);
  EXPECT_TRUE(grad_of(batch.per_sample_weights).defined());
}

TEST(TableBatchedEmbeddingBags, GivesWeightsOfSamplesTheirGradient) {
  const auto module = filled(options_of(TableStep{}));
  TableBatch batch = drawn(5);
  batch.per_sample_weights = facets::sample_tensor(6, batch.indices.extents());
  requires_grad_(batch.per_sample_weights);
  const Tensor y = module->forward(batch);
  backward(y, facets::sample_tensor(7, {kBags, 21}));
  TableBatch named = batch;
  named.features = {0, 1, 0};
  expect_same_bits(grad_of(batch.per_sample_weights),
                   table_batched_weights_backward(std::vector{module->weight(0).master(), module->weight(1).master()},
                                                  {facets::sample_tensor(7, {kBags, 21}), named}));
  module->step();
}

TEST(TableBatchedEmbeddingBags, LeavesItsTablesToItselfWithAnOptimizerAndToOthersWithout) {
  const auto fused = filled(options_of(TableStep{})), dense = filled(options_of({}));
  EXPECT_FALSE(fused->weight(0).requires_grad());
  EXPECT_TRUE(dense->weight(0).requires_grad());
  backward(loss_of(fused->forward(drawn(1))));
  EXPECT_FALSE(fused->weight(0).grad().defined());
  backward(loss_of(dense->forward(drawn(1))));
  {
    const NoGradScope no_grad;
    for (size_t t = 0; t < 2; ++t) {
      const Parameter& w = dense->weight(t);
      sgd_step_(w.master(), w.grad(), zeros(to_shape(w.sizes())), {.lr = 0.01});
    }
  }
  const auto stepped = filled(options_of(TableStep{.optimizer = TableOptimizer::sgd, .lr = 0.01}));
  backward(loss_of(stepped->forward(drawn(1))));
  stepped->step();
  for (size_t t = 0; t < 2; ++t) expect_same_bits(stepped->weight(t).master(), dense->weight(t).master());
  EXPECT_EQ(
      message_of([&] { dense->step(); }),
      "TableBatchedEmbeddingBags::step: the module has no optimizer; its tables have dense gradients, which others "
      "step");
}

TEST(TableBatchedEmbeddingBags, ResumesFromItsStateDictAndOptimizerState) {
  for (const TableStep& step :
       {TableStep{}, TableStep{.optimizer = TableOptimizer::adam}, TableStep{.optimizer = TableOptimizer::sgd},
        TableStep{.optimizer = TableOptimizer::partial_rowwise_adam},
        TableStep{.weight_decay = 0.3, .decay = TableDecay::global}}) {
    const auto whole = filled(options_of(step, DType::bf16));
    const auto train = [](TableBatchedEmbeddingBags& m, int64_t first, int64_t last) {
      for (int64_t s = first; s < last; ++s) {
        backward(loss_of(m.forward(drawn(60 + static_cast<uint64_t>(s)))));
        m.step();
      }
    };
    train(*whole, 0, 3);
    StateDict values, state;
    for (const auto& [name, t] : whole->state_dict()) values.emplace_back(name, clone(t));
    for (const auto& [name, t] : whole->optimizer_state()) state.emplace_back(name, clone(t));
    train(*whole, 3, 6);
    TableBatchedEmbeddingBags resumed(configs(), options_of(step, DType::bf16));
    resumed.load_state_dict(values);
    resumed.load_optimizer_state(state);
    EXPECT_EQ(resumed.steps_taken(), 3);
    train(resumed, 3, 6);
    const StateDict a = whole->state_dict(), b = resumed.state_dict();
    for (size_t i = 0; i < a.size(); ++i) expect_same_bits(b[i].second, a[i].second, a[i].first);
    state.pop_back();
    EXPECT_EQ(message_of([&] { resumed.load_optimizer_state(state); }),
              fmt::format("TableBatchedEmbeddingBags: the state has no state.iter; it has {} entries", state.size()));
  }
  std::vector<std::string> names;
  for (const auto& [name, t] :
       filled(options_of(TableStep{.weight_decay = 0.3, .decay = TableDecay::global}))->optimizer_state())
    names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"state.user.weight.h", "state.user.weight.seen", "state.item.weight.h",
                                             "state.item.weight.seen", "state.iter"}));
}

TEST(TableBatchedEmbeddingBags, TellsOfIndicesOutOfRange) {
  TableBatchedOptions options = options_of(TableStep{});
  options.batch.bounds = BoundsCheck::ignore;
  const auto module = filled(options);
  TableBatch batch = drawn(1);
  batch.indices.data<int64_t>()[2] = 99;
  const TableBatchResult r = module->forward_with_report(batch);
  EXPECT_EQ(IndexReport::of(r.report).count, 1);
  EXPECT_EQ(IndexReport::of(r.report).value, 99);
  backward(loss_of(r.values));
  module->step();
}

TEST(TableBatchedEmbeddingBags, DoesNotStepOneOfSeveralRanks) {
  RankContext context({.rank = 1, .world_size = 2, .threads = 1});
  const RankContext::Scope scope(context);
  const auto module = filled(options_of(TableStep{}));
  const Tensor before = clone(module->weight(0).master());
  backward(loss_of(module->forward(drawn(1))));
  EXPECT_EQ(
      message_of([&] { module->step(); }),
      "TableBatchedEmbeddingBags::step: 2 ranks train together, and a step sums the lookups of one rank, so their "
      "copies of the tables would differ from then on; use parallel::ShardedTables, which takes the same options");
  expect_same_bits(module->weight(0).master(), before);
}

TEST(TableBatchedEmbeddingBags, RefusesWhatItCannotDo) {
  EXPECT_EQ(message_of([] { TableBatchedEmbeddingBags({}); }),
            "TableBatchedEmbeddingBags: there are no tables; give at least one");
  EXPECT_EQ(message_of([] { TableBatchedEmbeddingBags({{"", 3, 2}}); }),
            "TableBatchedEmbeddingBags: a table of 3 rows has no name");
  EXPECT_EQ(message_of([] { TableBatchedEmbeddingBags({{"a", 3, -2}}); }),
            "TableBatchedEmbeddingBags: table a has 3 rows and -2 columns; expected 0 or more of each");
  EXPECT_EQ(message_of([] { TableBatchedEmbeddingBags({{"a", 3, 2}}, {.dtype = DType::f64}); }),
            "TableBatchedEmbeddingBags: tables in f64; expected f32, bf16 or f16");
  EXPECT_EQ(message_of([] { TableBatchedEmbeddingBags({{"a", 3, 2}}, {.features = {1}}); }),
            "TableBatchedEmbeddingBags: a feature looks up table 1; there are 1 tables");
  EXPECT_EQ(message_of([] { TableBatchedEmbeddingBags({{"a", 3, 2}}, {.optimizer = TableStep{.lr = -1}}); }),
            "table_batched_step_: lr is -1; expected 0 or more");
  EXPECT_THROW(TableBatchedEmbeddingBags({{"a", 3, 2}, {"a", 3, 2}}), UsageError);
  const auto module = filled(options_of(TableStep{}));
  TableBatch batch = drawn(1);
  batch.features = {0, 1, 0};
  EXPECT_EQ(message_of([&] { module->forward(batch); }),
            "TableBatchedEmbeddingBags: the batch names the tables of 3 features; they are options of the module");
  EXPECT_EQ(message_of([&] { module->forward(drawn(1), 65536); }),
            "TableBatchedEmbeddingBags: virtual shard 65536; expected at least 0 and less than 65536");
  module->weight(1).requires_grad_(true);
  EXPECT_EQ(message_of([&] { module->forward(drawn(1)); }),
            "TableBatchedEmbeddingBags: table item requires grad, and the module has an optimizer of its own, which "
            "steps it without; call weight(1).requires_grad_(false), or build the module with .optimizer = "
            "std::nullopt");
  module->weight(1).requires_grad_(false);
  for (int i = 0; i < 2; ++i) backward(loss_of(module->forward(drawn(1), 4)));
  EXPECT_EQ(message_of([&] { module->step(); }),
            "TableBatchedEmbeddingBags: virtual shard 4 has two lookups in one step; make them features of one call");
}

}  // namespace
}  // namespace tutti::nn

// DLRM against its definition in double precision, gradients against differences of that.
#include "tutti/models/dlrm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/loss.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::models {
namespace {

using Values = std::map<std::string, std::vector<double>>;

const DlrmConfig kConfig{.dense_features = 3, .table_rows = {7, 2, 11}, .dim = 5, .bottom = {6, 4}, .top = {8, 3}};

struct Batch {
  Tensor dense, labels;
  std::vector<std::vector<std::vector<int64_t>>> bags;  // of each table and example
};

std::vector<double> layer(const std::vector<double>& x, const Values& values, const std::string& name, bool relu) {
  const std::vector<double>&w = values.at(name + ".weight"), &b = values.at(name + ".bias");
  std::vector<double> y = b;
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    if (relu) y[o] = std::max(y[o], 0.0);
  }
  return y;
}

double defined_logit(const DlrmConfig& c, const Values& values, const Batch& batch, size_t b) {
  std::vector<double> x;
  for (int64_t j = 0; j < c.dense_features; ++j)
    x.push_back(batch.dense.data<float>()[static_cast<int64_t>(b) * c.dense_features + j]);
  for (size_t i = 0; i <= c.bottom.size(); ++i) x = layer(x, values, fmt::format("bottom.{}", i), true);
  const auto D = static_cast<size_t>(c.dim);
  std::vector<std::vector<double>> features{x};
  for (size_t t = 0; t < c.table_rows.size(); ++t) {
    std::vector<double> pooled(D, 0);
    for (const int64_t row : batch.bags[t][b])
      for (size_t d = 0; d < D; ++d)
        pooled[d] += values.at(fmt::format("tables.{}.weight", t))[static_cast<size_t>(row) * D + d];
    features.push_back(pooled);
  }
  for (size_t i = 1; i < features.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      double dot = 0;
      for (size_t d = 0; d < D; ++d) dot += features[i][d] * features[j][d];
      x.push_back(dot);
    }
  for (size_t i = 0; i <= c.top.size(); ++i) x = layer(x, values, fmt::format("top.{}", i), i < c.top.size());
  return x[0];
}

double defined_loss(const DlrmConfig& c, const Values& values, const Batch& batch) {
  double loss = 0;
  for (int64_t b = 0; b < batch.labels.numel(); ++b) {
    const double z = defined_logit(c, values, batch, static_cast<size_t>(b));
    loss += std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))) - z * batch.labels.data<float>()[b];
  }
  return loss;
}

Values values_of(const Dlrm& model) {
  Values values;
  for (const nn::NamedParameter& p : model.named_parameters()) {
    const Tensor master = p.parameter.master();
    values[p.name] = {master.data<float>(), master.data<float>() + master.numel()};
  }
  return values;
}

// Bags of `length` rows, or with 0 of none to three.
Batch batch_of(const DlrmConfig& c, int64_t examples, int64_t length) {
  Batch batch{
      .dense = normal({examples, c.dense_features}), .labels = Tensor::empty({examples}, DType::f32), .bags = {}};
  for (int64_t b = 0; b < examples; ++b) batch.labels.data<float>()[b] = static_cast<float>(b % 3 == 0);
  for (const int64_t rows : c.table_rows) {
    auto& table = batch.bags.emplace_back();
    for (int64_t b = 0; b < examples; ++b) {
      const int64_t n = length > 0 ? length : (b + rows) % 4;
      const Tensor drawn = randint(0, rows, {n});
      table.emplace_back(drawn.data<int64_t>(), drawn.data<int64_t>() + n);
    }
  }
  return batch;
}
TableBatch bags_of(const Batch& batch) {
  std::vector<int64_t> indices, offsets = {0};
  for (const auto& table : batch.bags) {
    for (const std::vector<int64_t>& bag : table) {
      indices.insert(indices.end(), bag.begin(), bag.end());
      offsets.push_back(std::ssize(indices));
    }
  }
  return {.indices = Tensor::of(indices), .offsets = Tensor::of(offsets)};
}
Tensor categories_of(const Batch& batch) {
  const auto tables = static_cast<int64_t>(batch.bags.size()), examples = batch.labels.numel();
  Tensor categories = Tensor::empty({examples, tables}, DType::i64);
  for (int64_t b = 0; b < examples; ++b)
    for (int64_t t = 0; t < tables; ++t)
      categories.data<int64_t>()[b * tables + t] = batch.bags[static_cast<size_t>(t)][static_cast<size_t>(b)][0];
  return categories;
}

void expect_logits(const Tensor& logits, const Dlrm& model, const Batch& batch) {
  ASSERT_EQ(logits.extents(), batch.labels.extents());
  for (int64_t b = 0; b < logits.numel(); ++b)
    EXPECT_NEAR(logits.data<float>()[b], defined_logit(model.config(), values_of(model), batch, static_cast<size_t>(b)),
                2e-6);
}

TEST(Dlrm, HasTheLogitsOfTheDefinition) {
  seed_all(1);
  Dlrm model(kConfig);
  nn::initialize(model);
  const Batch batch = batch_of(kConfig, 9, 1), ragged = batch_of(kConfig, 9, 0);
  expect_logits(model.forward(batch.dense, categories_of(batch)), model, batch);
  expect_logits(model.forward(ragged.dense, bags_of(ragged)), model, ragged);
  const Tensor by_bags = model.forward(batch.dense, bags_of(batch)),
               by_categories = model.forward(batch.dense, categories_of(batch));
  EXPECT_EQ(std::memcmp(by_bags.raw_data(), by_categories.raw_data(), 9 * sizeof(float)), 0);
}

TEST(Dlrm, SmallestModelsWork) {
  seed_all(2);
  for (const DlrmConfig& c : {DlrmConfig{.dense_features = 1, .table_rows = {}, .dim = 1, .bottom = {}, .top = {}},
                              DlrmConfig{.dense_features = 2, .table_rows = {1}, .dim = 1, .bottom = {}, .top = {2}}}) {
    Dlrm model(c);
    nn::initialize(model);
    const Batch batch = batch_of(c, 4, 1);
    expect_logits(model.forward(batch.dense, bags_of(batch)), model, batch);
    EXPECT_EQ(model.parameter_count(), parameter_count(c));
  }
  Dlrm model(kConfig);
  nn::initialize(model);
  EXPECT_EQ(model.parameter_count(), parameter_count(kConfig));
  const Batch none = batch_of(kConfig, 0, 0);
  EXPECT_EQ(model.forward(none.dense, bags_of(none)).numel(), 0);
}

TEST(Dlrm, HasTheSlopesOfTheDefinition) {
  seed_all(3);
  DlrmConfig c = kConfig;
  c.table_optimizer = std::nullopt;
  Dlrm model(c);
  nn::initialize(model);
  // With biases of 0, layers whose inputs are all cut off by ReLU stand where the next one has no slope.
  for (const nn::NamedParameter& p : model.named_parameters()) {
    if (!p.name.ends_with(".bias")) continue;
    for (int64_t i = 0; i < p.parameter.master().numel(); ++i)
      p.parameter.master().data<float>()[i] = 0.05f * static_cast<float>(i % 5 + 1);
    p.parameter.will_change();
  }
  const Batch batch = batch_of(c, 12, 0);
  backward(sum(nn::binary_cross_entropy_with_logits(model.forward(batch.dense, bags_of(batch)), batch.labels, {},
                                                    LossReduction::none)));
  Values values = values_of(model);
  for (const nn::NamedParameter& p : model.named_parameters())
    for (size_t i = 0; i < values[p.name].size(); ++i) {
      constexpr double step = 1e-5;
      double& value = values[p.name][i];
      const double before = value;
      value = before + step;
      const double above = defined_loss(c, values, batch);
      value = before - step;
      const double below = defined_loss(c, values, batch);
      value = before;
      EXPECT_NEAR(p.parameter.grad().data<float>()[i], (above - below) / (2 * step), 2e-5) << p.name << " " << i;
    }
}

// Row-wise Adagrad by its formula, in double precision, over several steps.
TEST(Dlrm, StepsTheRowsThatWereLookedUp) {
  seed_all(4);
  const TableStep options{.lr = 0.1, .eps = 1e-8};
  DlrmConfig c = kConfig;
  c.table_optimizer = options;
  Dlrm sparse(c);
  c.table_optimizer = std::nullopt;
  Dlrm dense(c);
  nn::initialize(sparse);
  nn::initialize(dense);
  std::map<std::string, std::vector<double>> squares;
  for (int step = 0; step < 5; ++step) {
    const Batch batch = batch_of(kConfig, 6, 0);
    for (Dlrm* model : {&sparse, &dense})
      backward(sum(nn::binary_cross_entropy_with_logits(model->forward(batch.dense, bags_of(batch)), batch.labels, {},
                                                        LossReduction::none)));
    sparse.tables().step();
    for (size_t t = 0; t < kConfig.table_rows.size(); ++t) {
      const std::string name = fmt::format("tables.{}.weight", t);
      nn::Parameter table, mirror;
      for (const nn::NamedParameter& p : dense.named_parameters())
        if (p.name == name) table = p.parameter;
      for (const nn::NamedParameter& p : sparse.named_parameters())
        if (p.name == name) mirror = p.parameter;
      const auto D = static_cast<size_t>(kConfig.dim), rows = static_cast<size_t>(kConfig.table_rows[t]);
      squares[name].resize(rows);
      for (size_t r = 0; r < rows; ++r) {
        const float* g = table.grad().data<float>() + r * D;
        double mean = 0;
        for (size_t d = 0; d < D; ++d) mean += double{g[d]} * g[d] / static_cast<double>(D);
        squares[name][r] += mean;
        for (size_t d = 0; d < D; ++d) {
          float& w = table.master().data<float>()[r * D + d];
          w = static_cast<float>(w - options.lr / (std::sqrt(squares[name][r]) + options.eps) * g[d]);
          EXPECT_NEAR(mirror.master().data<float>()[r * D + d], w, 1e-5) << name << " row " << r << " step " << step;
        }
      }
      table.will_change();
      std::memcpy(table.master().raw_data(), mirror.master().raw_data(), rows * D * sizeof(float));
    }
    dense.zero_grad();
    sparse.zero_grad();
  }
  for (const auto& [name, values] : sparse.tables().optimizer_state()) {
    if (!name.ends_with(".weight.h")) continue;
    const std::vector<double>& expected = squares.at(fmt::format("tables.{}.weight", name[std::strlen("state.")]));
    for (size_t r = 0; r < expected.size(); ++r)
      EXPECT_NEAR(values.data<float>()[r], expected[r], 1e-5 * (1 + expected[r])) << name;
  }
}

TEST(Dlrm, RefusesWhatDoesNotFit) {
  EXPECT_EQ(message_of([] { Dlrm({.table_rows = {3, 0}}); }),
            "dlrm: the number of rows of table 1 is 0; expected 1 to 72057594037927935");
  EXPECT_EQ(message_of([] { Dlrm({.dim = 0}); }), "dlrm: dim is 0; expected 1 to 16777216");
  EXPECT_EQ(message_of([] { Dlrm({.bottom = {4, -1}}); }), "dlrm: a layer of bottom is -1; expected 1 to 16777216");
  Dlrm model(kConfig);
  nn::initialize(model);
  const Tensor dense = normal({4, 3});
  EXPECT_EQ(message_of([&] { model.forward(dense, Tensor::empty({4, 2}, DType::i64)); }),
            "dlrm: categories are [4, 2] i64 cpu; expected [examples, 3], a row of each table");
  EXPECT_EQ(message_of([&] { model.forward(normal({4, 2}), randint(0, 2, {4, 3})); }),
            "dlrm: dense features are [4, 2] f32 cpu; expected [examples, 3]");
  EXPECT_EQ(message_of([&] { model.forward(dense, randint(0, 2, {5, 3})); }),
            "dlrm: 4 examples have dense features and 5 categories");
  EXPECT_EQ(
      message_of([&] { model.forward(dense, Tensor::of<int64_t>({0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, {4, 3})); }),
      "table_batched_embedding_bags: 1 of the indices is out of range; the first is 2 of feature 1, bag 1 (position "
      "5), whose table has 2 rows; legal: 0 to 1");
  EXPECT_EQ(message_of([&] {
              model.forward(dense, TableBatch{.indices = Tensor::of<int64_t>({0, 1}),
                                              .offsets = Tensor::of<int64_t>({0, 1, 1, 2, 2})});
            }),
            "table_batched_embedding_bags: 5 offsets for 3 features with B bags each; expected 3 * B + 1, such as 4 or "
            "7");
  EXPECT_EQ(message_of([&] { model.forward(dense, TableBatch{.bags = {4, 4, 4}}); }),
            "dlrm: the batch has numbers of bags for 3 features; every example has one bag of each table");
  Dlrm without({.dense_features = 3, .table_rows = {}});
  nn::initialize(without);
  EXPECT_EQ(without.forward(dense, Tensor()).numel(), 4);
  EXPECT_EQ(without.forward(dense, Tensor::empty({4, 0}, DType::i64)).numel(), 4);
  EXPECT_EQ(message_of([&] { without.forward(dense, randint(0, 2, {4, 1})); }),
            "dlrm: categories are [4, 1] i64 cpu; the model has no tables");
  EXPECT_EQ(message_of([&] { without.forward(dense, TableBatch{.indices = Tensor::of<int64_t>({0, 1})}); }),
            "dlrm: 2 categories; the model has no tables");
  EXPECT_EQ(message_of([&] { without.tables(); }), "dlrm: the model has no tables");
  const DlrmConfig enormous{.table_rows = std::vector<int64_t>(9, INT64_MAX / 8), .dim = 1};
  EXPECT_EQ(message_of([&] { parameter_count(enormous); }),
            "dlrm: 9 tables and the layers have more than 2^63 - 1 parameters");
}

TEST(Dlrm, OneCompiledFamilyTakesBatchesOfAnySize) {
  seed_all(4);
  Dlrm model(kConfig);
  nn::initialize(model);
  const nn::EvalScope evaluating(model);
  const NoGradScope no_grad;
  const auto f = compile([&](const Tensor& dense, const Tensor& rows) { return model.forward(dense, rows); });
  for (const int64_t B : {2, 3, 5, 7, 11, 6}) {
    const Tensor dense = normal({B, 3}), rows = randint(0, 2, {B, 3});
    const Tensor compiled = f(dense, rows), eager = model.forward(dense, rows);
    ASSERT_EQ(compiled.extents(), eager.extents());
    EXPECT_EQ(std::memcmp(compiled.raw_data(), eager.raw_data(), static_cast<size_t>(eager.nbytes())), 0) << B;
  }
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
  EXPECT_EQ(message_of([&] { f(normal({4, 3}), randint(0, 2, {5, 3})); }),
            "dlrm: 4 examples have dense features and 5 categories");
}

TEST(Dlrm, TakesRowsThatWereLookedUpElsewhere) {
  seed_all(3);
  DlrmConfig apart = kConfig;
  apart.tables_apart = true;
  Dlrm whole(kConfig), model(apart);
  nn::initialize(whole);
  nn::initialize(model);
  nn::TableBatchedEmbeddingBags& tables = whole.tables();
  EXPECT_EQ(model.named_parameters().size(), whole.other_parameters().size());
  const Tensor dense = facets::sample_tensor(1, {4, kConfig.dense_features}, DType::f32);
  const Tensor categories = facets::sample_tensor(2, {4, 3}, DType::i64, 0, 2);
  for (const Tensor& given :
       {categories, permute(to_contiguous(permute(categories, {1, 0})), {1, 0}), cast(categories, DType::i32)}) {
    const Tensor looked_up = tables.forward(table_batch_of(given));
    expect_same_bits(detach(model.forward_looked_up(dense, looked_up)), detach(whole.forward(dense, categories)));
    tables.abandon_step();
  }
  const auto refused = [](const auto& call) { return message_of(call); };
  EXPECT_EQ(refused([&] { model.forward(dense, categories); }),
            "dlrm: the model has no tables (tables_apart); look up rows, and call forward_looked_up()");
  EXPECT_EQ(refused([&] { whole.forward_looked_up(dense, dense); }),
            "dlrm: the model has tables of its own; call forward() with categories, or set tables_apart");
  EXPECT_NE(refused([&] { model.forward_looked_up(dense, dense); }).find("dlrm: looked-up rows are"),
            std::string::npos);
  EXPECT_EQ(refused([&] { table_batch_of(Tensor::of<int64_t>({1, 2})); }),
            "dlrm: categories are [2] i64 cpu; expected [examples, tables]");
}

TEST(Dlrm, NamesItsParameters) {
  std::vector<std::string> names;
  Dlrm model(kConfig);
  for (const nn::NamedParameter& p : model.other_parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"bottom.0.weight", "bottom.0.bias", "bottom.1.weight", "bottom.1.bias",
                                             "bottom.2.weight", "bottom.2.bias", "top.0.weight", "top.0.bias",
                                             "top.1.weight", "top.1.bias", "top.2.weight", "top.2.bias"}));
  names.clear();
  for (const nn::NamedParameter& p : model.named_parameters())
    if (p.name.starts_with("tables.")) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"tables.0.weight", "tables.1.weight", "tables.2.weight"}));
}

}  // namespace
}  // namespace tutti::models

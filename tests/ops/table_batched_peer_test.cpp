// Twenty steps against FBGEMM's table-batched embeddings and PyTorch: table_batched_reference.py made the results.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tutti/ops/cast.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/table_batched_step.h"

namespace tutti {
namespace {

constexpr int64_t kRowsOf[] = {6, 5}, kColumnsOf[] = {8, 4}, kBagsOfFeature = 5;

// The formulas of the script.
uint64_t word(uint64_t a, uint64_t b) { return ((a * 2654435761u + b * 40503 + 12345) % (uint64_t{1} << 32)) >> 8; }
Tensor numbers(uint64_t seed, const Extents& sizes) {
  const Tensor t = Tensor::empty(sizes, DType::f32);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = static_cast<float>(static_cast<double>(word(static_cast<uint64_t>(i), seed)) / (1 << 23) - 1);
  return t;
}
TableBatch batch_of_step(uint64_t step, const std::vector<int64_t>& features, bool every_row) {
  std::vector<int64_t> indices, offsets = {0};
  for (uint64_t k = 0; k < features.size() * kBagsOfFeature; ++k) {
    const uint64_t rows = static_cast<uint64_t>(kRowsOf[features[k / kBagsOfFeature]]);
    const bool all = every_row && k % kBagsOfFeature == 0;
    const uint64_t length = all ? 2 * rows : word(k, step) % 4;
    for (uint64_t p = 0; p < length; ++p)
      indices.push_back(static_cast<int64_t>((all ? p : word(indices.size(), 1000 + step)) % rows));
    offsets.push_back(static_cast<int64_t>(indices.size()));
  }
  return {.indices = Tensor::of<int64_t>(indices), .offsets = Tensor::of<int64_t>(offsets), .features = features};
}

struct PeerCase {
  std::string optimizer, decay, pooling, dtype, features;
  double weight_decay = 0;
  std::map<std::string, std::vector<double>> results;
  std::string name() const { return fmt::format("{} {} {}", optimizer, decay, pooling); }
};

std::vector<PeerCase> peer_cases() {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/fbgemm_tables.txt");
  std::vector<PeerCase> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "case") {
      PeerCase& c = cases.emplace_back();
      words >> c.optimizer >> c.decay >> c.weight_decay >> c.pooling >> c.dtype >> c.features;
      continue;
    }
    size_t count = 0;
    words >> count;
    std::vector<double>& values = cases.back().results[name];
    for (double v; words >> v;) values.push_back(v);
    EXPECT_EQ(values.size(), count) << name;
  }
  return cases;
}

TableStep step_of(const PeerCase& c) {
  using enum TableOptimizer;
  const std::map<std::string, TableOptimizer> optimizers = {
      {"sgd", sgd}, {"adagrad", adagrad}, {"rowwise_adagrad", rowwise_adagrad}, {"adam", adam}};
  const std::map<std::string, TableDecay> decays = {
      {"none", TableDecay::none}, {"l2", TableDecay::l2}, {"decoupled", TableDecay::decoupled}};
  return {.optimizer = optimizers.at(c.optimizer),
          .lr = 0.05,
          .weight_decay = c.weight_decay,
          .decay = decays.at(c.decay),
          .stochastic_rounding = false};
}

// Within a few roundings: of f32, or of tables in f16, each of which may fall on the other side of a tie.
void expect_close(const PeerCase& c, const std::string& what, const Tensor& actual) {
  const auto found = c.results.find(what);
  ASSERT_NE(found, c.results.end()) << c.name() << " has no " << what;
  ASSERT_EQ(static_cast<size_t>(actual.numel()), found->second.size()) << c.name() << " " << what;
  const double accepted = c.dtype == "f16" ? 0x1p-9 : 1e-5;
  for (size_t i = 0; i < found->second.size(); ++i)
    ASSERT_NEAR(facets::read_double(actual, static_cast<int64_t>(i)), found->second[i],
                accepted * (1 + std::fabs(found->second[i])))
        << c.name() << " " << what << " " << i;
}

TEST(TableBatchedPeer, HasTheResultsWeightsAndStatesOfFbgemmAndPyTorchAfterTwentySteps) {
  const std::vector<PeerCase> cases = peer_cases();
  EXPECT_EQ(cases.size(), 12u);
  for (const PeerCase& c : cases) {
    TableStep options = step_of(c);
    const bool adam = options.optimizer == TableOptimizer::adam;
    const TableBatchOptions batch_options{.pooling = c.pooling == "sum" ? TablePooling::sum : TablePooling::mean,
                                          .output = TableOutput::f32};
    std::vector<int64_t> features;
    for (const char table : c.features) features.push_back(table - '0');
    std::vector<Tensor> tables;
    std::vector<TableState> states;
    for (size_t t = 0; t < 2; ++t) {
      tables.push_back(cast(numbers(t, {kRowsOf[t], kColumnsOf[t]}), c.dtype == "f16" ? DType::f16 : DType::f32));
      states.push_back(table_state(options, kRowsOf[t], kColumnsOf[t]));
    }
    for (options.step = 1; options.step <= 20; ++options.step) {
      const uint64_t step = static_cast<uint64_t>(options.step);
      const TableBatch batch = batch_of_step(step, features, adam);
      const Tensor y = table_batched_embedding_bags(tables, batch, batch_options).values;
      if (step == 1 || step == 20) expect_close(c, fmt::format("y{}", step), y);
      const TableUse use{numbers(2000 + step, y.extents()), batch};
      for (size_t t = 0; t < 2; ++t)
        table_batched_step_(tables[t], states[t], std::vector{use}, {static_cast<int64_t>(t), {8, 4}, kRowsOf[t]},
                            options, batch_options);
    }
    for (size_t t = 0; t < 2; ++t) {
      expect_close(c, fmt::format("w{}", t), tables[t]);
      if (states[t].first.defined()) expect_close(c, fmt::format("{}{}", adam ? "m" : "h", t), states[t].first);
      if (states[t].second.defined()) expect_close(c, fmt::format("v{}", t), states[t].second);
    }
  }
}

}  // namespace
}  // namespace tutti

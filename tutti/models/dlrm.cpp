#include "tutti/models/dlrm.h"

#include <cmath>
#include <optional>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/pairwise_dots.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"

namespace tutti::models {
namespace {

// The features of a list of layers, those that come in first.
std::vector<int64_t> sizes_of_bottom(const DlrmConfig& c) {
  std::vector<int64_t> sizes{c.dense_features};
  sizes.insert(sizes.end(), c.bottom.begin(), c.bottom.end());
  sizes.push_back(c.dim);
  return sizes;
}
std::vector<int64_t> sizes_of_top(const DlrmConfig& c) {
  const auto tables = static_cast<int64_t>(c.table_rows.size());
  std::vector<int64_t> sizes{c.dim + (tables + 1) * tables / 2};
  sizes.insert(sizes.end(), c.top.begin(), c.top.end());
  sizes.push_back(1);
  return sizes;
}

nn::Init init_of(int64_t table_rows) { return nn::Init::uniform(1 / std::sqrt(static_cast<double>(table_rows))); }

// Nothing when it is above 2^63 - 1.
std::optional<int64_t> counted_parameters(const DlrmConfig& c) {
  __int128 count = 0;
  for (const int64_t rows : c.table_rows) count += static_cast<__int128>(rows) * c.dim;
  for (const std::vector<int64_t>& sizes : {sizes_of_bottom(c), sizes_of_top(c)})
    for (size_t i = 1; i < sizes.size(); ++i) count += static_cast<__int128>(sizes[i - 1] + 1) * sizes[i];
  if (count > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(count);
}

}  // namespace

void validate(const DlrmConfig& c) {
  constexpr int64_t most_tables = 4096;
  const auto check = [](const char* name, int64_t size, int64_t limit = int64_t{1} << 24) {
    TUTTI_CHECK(size > 0 && size <= limit, "dlrm: {} is {}; expected 1 to {}", name, size, limit);
  };
  check("dense_features", c.dense_features);
  check("dim", c.dim);
  for (const int64_t size : c.bottom) check("a layer of bottom", size);
  for (const int64_t size : c.top) check("a layer of top", size);
  TUTTI_CHECK(static_cast<int64_t>(c.table_rows.size()) <= most_tables, "dlrm: {} tables; expected 0 to {}",
              c.table_rows.size(), most_tables);
  for (size_t t = 0; t < c.table_rows.size(); ++t)
    check(fmt::format("the number of rows of table {}", t).c_str(), c.table_rows[t], INT64_MAX / c.dim / 8);
  TUTTI_CHECK(counted_parameters(c), "dlrm: {} tables and the layers have more than 2^63 - 1 parameters",
              c.table_rows.size());
}

std::vector<nn::TableConfig> tables_of(const DlrmConfig& c) {
  validate(c);
  std::vector<nn::TableConfig> tables;
  for (size_t t = 0; t < c.table_rows.size(); ++t)
    tables.push_back({fmt::format("tables.{}", t), c.table_rows[t], c.dim, init_of(c.table_rows[t])});
  return tables;
}

TableBatch table_batch_of(const Tensor& categories) {
  TUTTI_CHECK(categories.ndim() == 2, "dlrm: categories are {}; expected [examples, tables]", describe(categories));
  const SymInt n = categories.size(0) * categories.size(1);
  return {.indices = reshape(permute(categories, {1, 0}), {n}), .offsets = arange(n + 1)};
}

int64_t parameter_count(const DlrmConfig& c) {
  validate(c);
  return *counted_parameters(c);
}

struct Dlrm::Layers final : nn::Module {
  Layers(const std::vector<int64_t>& sizes, bool ends_with_relu) : ends_with_relu(ends_with_relu) {
    names_its_children();
    for (size_t i = 1; i < sizes.size(); ++i) {
      const auto in = static_cast<double>(sizes[i - 1]), out = static_cast<double>(sizes[i]);
      layers.push_back(std::make_unique<nn::Child<nn::Linear>>(
          this, std::to_string(i - 1), sizes[i - 1], sizes[i],
          nn::LinearOptions{.init = nn::Init::normal(std::sqrt(2 / (in + out)))}));
    }
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      y = (*layers[i])(y);
      if (i + 1 < layers.size() || ends_with_relu) y = relu(y);
    }
    return y;
  }
  std::vector<std::unique_ptr<nn::Child<nn::Linear>>> layers;
  const bool ends_with_relu;
};

Dlrm::Dlrm(const DlrmConfig& config) : config_((validate(config), config)) {
  bottom_ = std::make_unique<nn::Child<Layers>>(this, "bottom", sizes_of_bottom(config), true);
  if (!config.tables_apart && !config.table_rows.empty()) {
    std::vector<nn::TableConfig> tables = tables_of(config);
    for (size_t t = 0; t < tables.size(); ++t) tables[t].name = std::to_string(t);  // below "tables"
    tables_ = std::make_unique<nn::Child<nn::TableBatchedEmbeddingBags>>(
        this, "tables", std::move(tables), nn::TableBatchedOptions{.optimizer = config.table_optimizer});
  }
  top_ = std::make_unique<nn::Child<Layers>>(this, "top", sizes_of_top(config), false);
}

Dlrm::~Dlrm() = default;

nn::TableBatchedEmbeddingBags& Dlrm::tables() {
  TUTTI_CHECK(tables_ != nullptr, "dlrm: the model has no tables{}",
              config_.tables_apart ? " (tables_apart); they are those of the module that looks them up" : "");
  return **tables_;
}

std::vector<nn::NamedParameter> Dlrm::other_parameters() const {
  std::vector<nn::NamedParameter> parameters = named_parameters();
  if (config_.table_optimizer)
    std::erase_if(parameters, [](const nn::NamedParameter& p) { return p.name.starts_with("tables."); });
  return parameters;
}

Tensor Dlrm::forward(const Tensor& dense, const Tensor& categories, std::optional<int64_t> virtual_shard) const {
  check_tables(false);
  if (config_.table_rows.empty()) {
    TUTTI_CHECK(!categories.defined() || (categories.ndim() == 2 && categories.extent(1) == 0),
                "dlrm: categories are {}; the model has no tables", describe(categories));
    return logits(dense, {});
  }
  const auto tables = static_cast<int64_t>(config_.table_rows.size());
  TUTTI_CHECK(categories.ndim() == 2 && categories.size(1) == tables,
              "dlrm: categories are {}; expected [examples, {}], a row of each table", describe(categories), tables);
  return forward(dense, table_batch_of(categories), virtual_shard);
}

Tensor Dlrm::forward(const Tensor& dense, const TableBatch& bags, std::optional<int64_t> virtual_shard) const {
  check_tables(false);
  TUTTI_CHECK(bags.bags.empty(),
              "dlrm: the batch has numbers of bags for {} features; every example has one bag of each table",
              bags.bags.size());
  if (config_.table_rows.empty()) {
    TUTTI_CHECK(!bags.indices.defined() || bags.indices.numel() == 0, "dlrm: {} categories; the model has no tables",
                bags.indices.numel());
    return logits(dense, {});
  }
  return logits(dense, by_table((*tables_)->forward(bags, virtual_shard)));
}

// [B, T, D]
Tensor Dlrm::by_table(const Tensor& looked_up) const {
  return reshape(looked_up, {looked_up.size(0), static_cast<int64_t>(config_.table_rows.size()), config_.dim});
}

Tensor Dlrm::forward_looked_up(const Tensor& dense, const Tensor& looked_up) const {
  check_tables(true);
  const auto tables = static_cast<int64_t>(config_.table_rows.size());
  TUTTI_CHECK(looked_up.ndim() == 2 && looked_up.size(1) == tables * config_.dim,
              "dlrm: looked-up rows are {}; expected [examples, {}], {} tables of {} columns", describe(looked_up),
              tables * config_.dim, tables, config_.dim);
  if (tables == 0) return logits(dense, {});
  return logits(dense, by_table(looked_up));
}

void Dlrm::check_tables(bool apart) const {
  TUTTI_CHECK(apart == config_.tables_apart, "dlrm: {}",
              apart ? "the model has tables of its own; call forward() with categories, or set tables_apart"
                    : "the model has no tables (tables_apart); look up rows, and call forward_looked_up()");
}

Tensor Dlrm::logits(const Tensor& dense, const Tensor& embedded) const {
  TUTTI_CHECK(dense.ndim() == 2 && dense.extent(1) == config_.dense_features,
              "dlrm: dense features are {}; expected [examples, {}]", describe(dense), config_.dense_features);
  const SymInt B = dense.size(0);
  const Tensor x_0 = (*bottom_)(dense);
  Tensor features = x_0;
  if (embedded.defined()) {
    TUTTI_CHECK(embedded.size(0) == B, "dlrm: {} examples have dense features and {} categories", B, embedded.size(0));
    const Tensor all = cat({reshape(x_0, {B, 1, config_.dim}), embedded}, 1);  // [B, T + 1, D]
    features = cat({x_0, pairwise_dots(all)}, 1);
  }
  return reshape((*top_)(features), {B});
}

}  // namespace tutti::models

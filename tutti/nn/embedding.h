// Modules that look rows of a table up.
//
// A table that trains in sparse form takes no gradient of its own: what is looked up is where backward() ends, and
// take_row_gradients() adds up what arrived there. In a compiled function the three belong together: lookup, backward and
// take_row_gradients() inside of it.
#pragma once

#include <memory>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/ops/embedding_bag.h"
#include "tutti/ops/row_gradients.h"

namespace tutti::nn {

struct EmbeddingOptions {
  int64_t padding_idx = kNoPadding;  // its row takes no gradient
  bool sparse = false;
  Init init = Init::normal(1.0);
};

// What Embedding and EmbeddingBag share: the table, and the lookups that backward has yet to reach.
class Table : public Module {
 public:
  const Tensor& weight() const { return weight_; }
  bool is_sparse() const { return options_.sparse; }
  // The gradient of the table from all lookups since the last call, in forward order; those that no backward() reached
  // have none. UsageError when none was reached, or the table is not sparse.
  RowGradients take_row_gradients();

 protected:
  Table(int64_t rows, int64_t columns, const EmbeddingOptions& options);

  struct Lookup {
    Tensor indices, offsets;  // offsets undefined: one row for each index
    BagOptions bag;
    Tensor chosen;            // max
    Tensor grad;              // of what was looked up, once backward() came by
  };
  // Where backward() ends. `found`: looked up from a detached table.
  Tensor end_of_backward(const Tensor& found, Lookup lookup);
  // The table for a lookup: detached where the gradient is sparse.
  Tensor table() const;

  Tensor weight_;
  EmbeddingOptions options_;

 private:
  std::vector<std::shared_ptr<Lookup>> lookups_;
};

// weight [rows, columns]. Row `padding_idx` is not set to zero: initialize() fills it like the others.
class Embedding : public Table {
 public:
  Embedding(int64_t rows, int64_t columns, const EmbeddingOptions& options = {}) : Table(rows, columns, options) {}
  // indices of any sizes -> their sizes and columns.
  Tensor forward(const Tensor& indices);
};

class EmbeddingBag : public Table {
 public:
  // options.padding_idx is that of the bags.
  EmbeddingBag(int64_t rows, int64_t columns, BagMode mode = BagMode::sum, const EmbeddingOptions& options = {}, bool include_last_offset = false)
      : Table(rows, columns, options), mode_(mode), include_last_offset_(include_last_offset) {}
  // As embedding_bag: indices [P] in bags, or [bags, length] without offsets.
  Tensor forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights = {});
  Tensor forward(const Tensor& indices_BL);

 private:
  BagMode mode_;
  bool include_last_offset_;
};

}  // namespace tutti::nn

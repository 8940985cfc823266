// Embedding modules: a table whose rows are looked up by index.
//
// A table with sparse gradients has no dense gradient: backward() ends at the looked-up rows, and take_row_gradients()
// returns the sum of the gradients that arrived there. In compiled code, lookup, backward() and take_row_gradients()
// must be in the same function.
#pragma once

#include <memory>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/ops/embedding_bag.h"
#include "tutti/ops/row_gradients.h"

namespace tutti::nn {

struct EmbeddingOptions {
  int64_t padding_idx = kNoPadding;  // this row gets no gradient
  bool sparse = false;               // sparse gradients, see take_row_gradients()
  Init init = Init::normal(1.0);
};

// The base of Embedding and EmbeddingBag: holds the table, and for sparse gradients the lookups since the last
// take_row_gradients().
class Table : public Module {
 public:
  Parameter weight;
  bool is_sparse() const { return options_.sparse; }
  // The gradient of the table, summed in forward order over all lookups since the last call; lookups that no backward()
  // reached are skipped. UsageError when none was reached, or when the table is not sparse.
  RowGradients take_row_gradients();
  // Forgets all lookups since the last call of take_row_gradients(). Call it before a step is repeated whose forward or
  // backward() has thrown: gradients that had arrived by then would be added to those of the repeated step.
  void abandon_row_gradients() { lookups_.clear(); }

 protected:
  Table(int64_t rows, int64_t columns, const EmbeddingOptions& options);

  struct Lookup {
    Tensor indices, offsets;  // offsets undefined: one row per index
    BagOptions bag;
    Tensor chosen;  // for BagMode::max
    Tensor grad;    // gradient of the looked-up rows, set by backward()
  };
  // Makes `found`, which was looked up in a detached table, the point where backward() ends.
  Tensor end_of_backward(const Tensor& found, Lookup lookup) const;
  // The table for a lookup: detached when gradients are sparse.
  Tensor table() const;

  EmbeddingOptions options_;

 private:
  mutable std::vector<std::shared_ptr<Lookup>> lookups_;  // what take_row_gradients() will read, not part of the values
};

// weight [rows, columns]. Unlike in PyTorch, row `padding_idx` does not start as zeros: initialize() fills it like the
// others.
class Embedding : public Table {
 public:
  Embedding(int64_t rows, int64_t columns, const EmbeddingOptions& options = {}) : Table(rows, columns, options) {
    weight.allow_blocks();
  }
  // Shapes: indices [...] -> [..., columns]. Rows of a weight that is frozen to quantized blocks are decoded as they
  // are looked up.
  Tensor forward(const Tensor& indices) const;
};

class EmbeddingBag : public Table {
 public:
  // Entries with index options.padding_idx are skipped in their bag.
  EmbeddingBag(int64_t rows, int64_t columns, BagMode mode = BagMode::sum, const EmbeddingOptions& options = {},
               bool include_last_offset = false)
      : Table(rows, columns, options), mode_(mode), include_last_offset_(include_last_offset) {}
  // As embedding_bag(): indices [P] divided into bags by `offsets`, or indices [bags, length] without offsets.
  Tensor forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights = {}) const;
  Tensor forward(const Tensor& indices_BL) const;

 private:
  BagMode mode_;
  bool include_last_offset_;
};

}  // namespace tutti::nn

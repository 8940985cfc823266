// Rows of click data as tensors.
#pragma once

#include "tutti/io/click_columns.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// n rows: dense f32 [n, dense columns], categories i64 [n, category columns], labels f32 [n].
struct ClickRows {
  Tensor dense, categories, labels;
  int64_t count() const { return labels.defined() ? labels.numel() : 0; }
};

// Memory for so many rows.
inline ClickRows empty_click_rows(const ClickColumns& columns, int64_t count) {
  return {Tensor::empty({count, static_cast<int64_t>(columns.dense.size())}, DType::f32),
          Tensor::empty({count, static_cast<int64_t>(columns.categories.size())}, DType::i64),
          Tensor::empty({count}, DType::f32)};
}

}  // namespace tutti

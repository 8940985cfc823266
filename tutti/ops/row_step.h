// One in-place optimizer step on those rows of a table that a batch used. Other rows are neither read nor written: they
// do not decay, and their moments do not change.
#pragma once

#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/row_gradients.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Shapes for all three functions: param, m, v [V, D], h [V], gradients of a table of V rows. Dtypes: f32. UsageError
// for a row outside the table or rows that are not ascending.

// g = grad * grad_scale + weight_decay * w; w -= lr * g. There is no momentum: options.momentum must be 0.
void sgd_rows_step_(const Tensor& param, const RowGradients& grads, const SgdStep& options);

struct AdagradStep {
  double lr;
  double eps = 1e-10;
  double weight_decay = 0.0;
  double grad_scale = 1.0;
};
// Row-wise Adagrad: g as above; h += mean of g^2 over the row, summed in the tree of reductions (numerics contract,
// N3) with leaves of 16 elements, as table_batched_step_() sums them; w -= lr / (sqrt(h) + eps) * g. Source: Mudigere
// et al. 2022, "Software-hardware co-design for fast and scalable training of deep learning recommendation models",
// section 4.1.4; Duchi et al. 2011.
void adagrad_rows_step_(const Tensor& param, const Tensor& h, const RowGradients& grads, const AdagradStep& options);

// adamw_step_ on the rows. All rows share one step count, whenever they were last updated.
void adamw_rows_step_(const Tensor& param, const Tensor& m, const Tensor& v, const RowGradients& grads,
                      const AdamWStep& options);

}  // namespace tutti

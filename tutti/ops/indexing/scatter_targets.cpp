#include "tutti/ops/indexing/scatter_targets.h"

#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/indices.h"

namespace tutti::facets {

void infer_scatter(const OpCall& call, OutputMetas& out) {
  const Tensor &x = call[0], &index = call[1], &source = call[2];
  const char* op = call.op.name;
  check_index_dtype(op, index);
  TUTTI_CHECK(index.sizes() == source.sizes(), "{}: the index {} and the source {} differ in size", op, describe(index),
              describe(source));
  TUTTI_CHECK_EQ(x.ndim(), index.ndim(), "{}: {} and the index {} differ in dims", op, describe(x), describe(index));
  for (size_t d = 0; d < x.sizes().size(); ++d) {
    TUTTI_CHECK(d == scatter_dim(call.attrs) || index.sizes()[d] <= x.sizes()[d],
                "{}: dim {} of the index {} is larger than that of {}", op, d, describe(index), describe(x));
  }
  out.add(x.dtype(), x.sizes());
}

void check_scatter_indices(const OpCall& call) {
  const size_t dim = scatter_dim(call.attrs);
  check_index_range(call.op.name, call[1], call[0].extents()[dim],
                    fmt::format("elements of dim {} of {}", dim, describe(call[0])));
}

std::string scatter_sharding(const OpCall& call, const char* classes) {
  std::string x = dim_letters(call[0].ndim()), index = x;
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == scatter_dim(call.attrs) || call[0].extents()[d] != call[1].extents()[d]) x[d] = 'X', index[d] = 'Y';
  }
  return fmt::format("x[{0}] #i[{1}] s[{1}] -> y[{0}] | | {2}", x, index, classes);
}

}  // namespace tutti::facets

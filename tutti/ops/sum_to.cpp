#include "tutti/ops/sum_to.h"

#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

constexpr int64_t kDefaultTokenGrain = 128;

}  // namespace

int64_t token_grain() {
  for (RankContext* rank : {&RankContext::current(), &RankContext::process_default()}) {
    if (const int64_t value = rank->token_grain.load(std::memory_order_relaxed); value > 0) return value;
  }
  return kDefaultTokenGrain;
}

TokenGrainScope::TokenGrainScope(int64_t value) : rank_(&RankContext::current()), before_(rank_->token_grain) {
  TUTTI_CHECK(value > 0, "token grain: {} positions; expected at least 1", value);
  rank_->token_grain = value;
}
TokenGrainScope::~TokenGrainScope() { rank_->token_grain = before_; }

Tensor sum_to(const Tensor& x, const Shape& sizes) {
  const int shift = x.ndim() - sizes.ndim();
  TUTTI_CHECK(shift >= 0 && broadcast_shapes(x.sizes(), sizes, "sum_to") == x.sizes(),
              "sum_to: {} does not broadcast to x, which is {}", sizes, describe(x));
  Dims inner, tokens;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d < shift) tokens.push_back(d);
    else if (sizes[static_cast<size_t>(d - shift)] == 1 && x.sizes()[static_cast<size_t>(d)] != 1) inner.push_back(d);
  }
  const DType dtype = is_floating(x.dtype()) ? compute_dtype(x.dtype()) : DType::i64;
  Tensor result = x;
  if (!inner.empty()) result = sum(result, {.dims = inner, .keepdim = true, .dtype = dtype});
  if (!tokens.empty()) result = sum(result, {.dims = tokens, .dtype = dtype, .leaf = token_grain()});
  return result;
}

}  // namespace tutti

#include "tests/support/ops_over_dims.h"

#include <utility>

#include <fmt/format.h>

#include "tutti/ops/cat.h"
#include "tutti/ops/decayed_cumsum.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/flip.h"
#include "tutti/ops/kthvalue.h"
#include "tutti/ops/logcumsumexp.h"
#include "tutti/ops/median.h"
#include "tutti/ops/mode.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/topk.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using Tensors = std::vector<Tensor>;

Tensors both(const SortResult& r) { return {r.values, r.indices}; }
Tensors both(const std::pair<Tensor, Tensor>& r) { return {r.first, r.second}; }

std::vector<OpOverDims> make_ops() {
  std::vector<OpOverDims> all;
  const auto several = [&](const char* name, auto fn) {
    for (const bool keepdim : {false, true}) {
      all.push_back({fmt::format("{}{}", name, keepdim ? " with keepdim" : ""), true,
                     [fn, keepdim](const Tensor& x, const Dims& dims) { return Tensors{fn(x, dims, keepdim)}; }});
    }
  };
  const auto one = [&](const char* name, auto fn) {
    all.push_back({name, false, [fn](const Tensor& x, const Dims& dims) { return Tensors(fn(x, dims[0])); }});
  };
  several("sum", [](const Tensor& x, const Dims& d, bool k) { return sum(x, {.dims = d, .keepdim = k}); });
  several("prod", [](const Tensor& x, const Dims& d, bool k) { return prod(x, {.dims = d, .keepdim = k}); });
  several("any", [](const Tensor& x, const Dims& d, bool k) { return any(x, {.dims = d, .keepdim = k}); });
  several("all", [](const Tensor& x, const Dims& d, bool k) { return tutti::all(x, {.dims = d, .keepdim = k}); });
  several("amax", [](const Tensor& x, const Dims& d, bool k) { return amax(x, {.dims = d, .keepdim = k}); });
  several("amin", [](const Tensor& x, const Dims& d, bool k) { return amin(x, {.dims = d, .keepdim = k}); });
  several("mean", [](const Tensor& x, const Dims& d, bool k) { return mean(x, {.dims = d, .keepdim = k}); });
  several("var", [](const Tensor& x, const Dims& d, bool k) { return var(x, {.dims = d, .keepdim = k}); });
  several("stddev",
          [](const Tensor& x, const Dims& d, bool k) { return stddev(x, {.dims = d, .keepdim = k, .correction = 0}); });
  all.push_back({"flip", true, [](const Tensor& x, const Dims& d) { return Tensors{flip(x, d)}; }});
  one("argmax", [](const Tensor& x, int64_t d) { return Tensors{argmax(x, {.dim = d})}; });
  one("argmin", [](const Tensor& x, int64_t d) { return Tensors{argmin(x, {.dim = d, .keepdim = true})}; });
  one("softmax", [](const Tensor& x, int64_t d) { return Tensors{softmax(x, d)}; });
  one("log_softmax", [](const Tensor& x, int64_t d) { return Tensors{log_softmax(x, d)}; });
  one("logsumexp", [](const Tensor& x, int64_t d) { return Tensors{logsumexp(x, d)}; });
  one("cumsum", [](const Tensor& x, int64_t d) { return Tensors{cumsum(x, d)}; });
  one("cumprod", [](const Tensor& x, int64_t d) { return Tensors{cumprod(x, d)}; });
  one("cummax", [](const Tensor& x, int64_t d) { return both(cummax(x, d)); });
  one("cummin", [](const Tensor& x, int64_t d) { return both(cummin(x, d)); });
  one("logcumsumexp", [](const Tensor& x, int64_t d) { return Tensors{logcumsumexp(x, d)}; });
  one("decayed_cumsum", [](const Tensor& x, int64_t d) { return Tensors{decayed_cumsum(x, sigmoid(x), d)}; });
  one("sort", [](const Tensor& x, int64_t d) { return both(sort(x, d)); });
  one("argsort", [](const Tensor& x, int64_t d) { return Tensors{argsort(x, d, true)}; });
  one("topk of 1", [](const Tensor& x, int64_t d) { return both(topk(x, 1, {.dim = d})); });
  one("topk of 0", [](const Tensor& x, int64_t d) { return both(topk(x, 0, {.dim = d})); });
  one("kthvalue", [](const Tensor& x, int64_t d) { return both(kthvalue(x, 1, d)); });
  one("median", [](const Tensor& x, int64_t d) { return both(median(x, d)); });
  one("nanmedian", [](const Tensor& x, int64_t d) { return both(nanmedian(x, d, true)); });
  one("mode", [](const Tensor& x, int64_t d) { return both(mode(x, d)); });
  one("roll", [](const Tensor& x, int64_t d) { return Tensors{roll(x, 1, d)}; });
  one("cat", [](const Tensor& x, int64_t d) { return Tensors{cat({x, x}, d)}; });
  one("stack", [](const Tensor& x, int64_t d) { return Tensors{stack({x, x}, d)}; });
  return all;
}

}  // namespace

const std::vector<OpOverDims>& ops_over_dims() {
  static const std::vector<OpOverDims> all = make_ops();
  return all;
}

std::vector<Extents> shapes_of(const std::vector<int64_t>& sizes, int ndim) {
  std::vector<Extents> all{Extents()};
  for (int d = 0; d < ndim; ++d) {
    std::vector<Extents> longer;
    for (const Extents& shape : all) {
      for (const int64_t size : sizes) {
        longer.push_back(shape);
        longer.back().push_back(size);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::vector<Dims> sets_of_dims(int ndim, bool several) {
  std::vector<Dims> all;
  for (uint32_t chosen = 1; chosen < 1u << ndim; ++chosen) {
    Dims dims;
    for (int d = 0; d < ndim; ++d) {
      if (chosen >> d & 1) dims.push_back(d);
    }
    if (several || dims.ndim() == 1) all.push_back(dims);
  }
  return all;
}

}  // namespace tutti

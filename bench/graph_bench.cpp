// What compiling graphs of many nodes costs besides making kernels.
#include <algorithm>
#include <functional>

#include "bench/compile_bench.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/softmax.h"

namespace tutti::bench {
namespace {

constexpr int kRepeats = 3;

struct GraphShape {
  const char* name;
  int64_t ops_of_turn;
  std::function<Tensor(const Tensor& x, int64_t turns)> run;
};

Tensor repeated(Tensor x, int64_t turns, const std::function<Tensor(const Tensor&)>& turn) {
  for (int64_t i = 0; i < turns; ++i) x = turn(x);
  return x;
}

// Many results that are added in the end, so that all of them live at once.
Tensor fan(const Tensor& x, int64_t turns) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < turns; ++i) all.push_back(mul(x, 1.0 + static_cast<double>(i)));
  Tensor y = all[0];
  for (size_t i = 1; i < all.size(); ++i) y = add(y, all[i]);
  return y;
}

std::vector<GraphShape> graph_shapes() {
  const auto turns_of = [](std::function<Tensor(const Tensor&)> turn) {
    return [turn = std::move(turn)](const Tensor& x, int64_t turns) { return repeated(x, turns, turn); };
  };
  return {{"chain", 1, turns_of([](const Tensor& x) { return add(x, 1.0); })},
          {"products", 2, turns_of([](const Tensor& x) { return mul(matmul(x, x), 0.1); })},
          {"reductions", 2, turns_of([](const Tensor& x) { return add(x, sum(x, {.dims = {1}, .keepdim = true})); })},
          {"softmax", 1, turns_of([](const Tensor& x) { return softmax(x, -1); })},
          {"fan", 2, fan}};
}

}  // namespace

std::vector<GraphRow> run_graph_bench(std::span<const int64_t> nodes) {
  const NoGradScope no_grad;
  std::vector<GraphRow> rows;
  for (const GraphShape& shape : graph_shapes()) {
    for (const int64_t n : nodes) {
      const Tensor x = facets::sample_tensor(1, {8, 8}, DType::f32, 0, 0.1);
      GraphRow row{.shape = shape.name, .nodes = n};
      // The first time kernels are made, or read from the disk.
      for (int repeat = 0; repeat <= kRepeats; ++repeat) {
        const auto f =
            compile([&](const Tensor& v) { return shape.run(v, std::max<int64_t>(n / shape.ops_of_turn, 1)); });
        f(x);
        const double trace_ms = f.statistics().trace_ms, passes_ms = f.statistics().compile_ms;
        if (repeat == 0) {
          row.first_ms = trace_ms + passes_ms;
          row.trace_ms = row.passes_ms = 1e300;
          continue;
        }
        row.trace_ms = std::min(row.trace_ms, trace_ms);
        row.passes_ms = std::min(row.passes_ms, passes_ms);
      }
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace tutti::bench

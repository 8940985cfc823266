// Matrix products with what follows them: op by op, compiled with kernels after the products, and with kernels inside
// them.
#include <cstring>

#include "bench/compile_bench.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

constexpr double kTotalMs = 2500;  // of a function

Tensor random(const Extents& sizes, DType dtype) {
  return cast(uniform(to_shape(sizes), random_key("bench"), -1.0, 1.0), dtype);
}

void require_same(const Tensor& a, const Tensor& b, const std::string& what) {
  TUTTI_ASSERT(
      a.nbytes() == b.nbytes() && std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0,
      "{}: bits differ", what);
}

// The three ways in turns, so that all meet the same noise.
template <class Fn, class... Args>
void add_rows(std::vector<CompileRow>& rows, const char* what, const std::string& shape, double flops, double bytes,
              Fn fn, const Args&... arguments) {
  const auto apart = compile(fn, {.name = what, .epilogues = graph::Epilogues::off, .prologues = false}),
             attached = compile(fn, {.name = what, .epilogues = graph::Epilogues::all});
  Tensor eager_result = fn(arguments...), apart_result = apart(arguments...), attached_result = attached(arguments...);
  require_same(apart_result, eager_result, what);
  require_same(attached_result, eager_result, what);
  const std::vector<Timing> times =
      measure_in_turns({[&] { eager_result = fn(arguments...); }, [&] { apart_result = apart(arguments...); },
                        [&] { attached_result = attached(arguments...); }},
                       kTotalMs);
  const auto row = [&](const char* mode, const Timing& time, int64_t kernels) {
    rows.push_back({what, shape, mode, time, bytes / time.median_us / 1e3, kernels, flops / time.median_us / 1e3});
  };
  row("eager", times[0], 0);
  row("apart", times[1], apart.statistics().last.kernels);
  row("compiled", times[2], attached.statistics().last.kernels);
}

// A kernel in front of a product: alone without it, with the kernel before the product, and with the kernel inside it.
void add_kernel_before(std::vector<CompileRow>& rows, int64_t m, int64_t k, int64_t n) {
  const std::string shape = fmt::format("{}x{}x{} f32", m, k, n);
  const Tensor x = random({m, k}, DType::f32), gate = random({m, k}, DType::f32), w = random({n, k}, DType::f32);
  const auto gated = [](const Tensor& a, const Tensor& g, const Tensor& b) { return linear(mul(silu(g), a), b); };
  const auto alone =
      compile([](const Tensor& a, const Tensor&, const Tensor& b) { return linear(a, b); }, {.name = "linear"});
  const auto apart = compile(gated, {.name = "linear of silu(gate) * x", .prologues = false}),
             attached = compile(gated, {.name = "linear of silu(gate) * x"});
  Tensor kept[3] = {alone(x, gate, w), apart(x, gate, w), attached(x, gate, w)};
  require_same(kept[2], kept[1], "linear(silu(gate) * x)");
  const std::vector<Timing> times =
      measure_in_turns({[&] { kept[0] = alone(x, gate, w); }, [&] { kept[1] = apart(x, gate, w); },
                        [&] { kept[2] = attached(x, gate, w); }},
                       kTotalMs);
  const double flops = 2.0 * static_cast<double>(m * n * k), bytes = 4.0 * static_cast<double>(m * k + n * k + m * n);
  const auto row = [&](const char* what, const char* mode, const Timing& time, double moved, int64_t kernels) {
    rows.push_back({what, shape, mode, time, moved / time.median_us / 1e3, kernels, flops / time.median_us / 1e3});
  };
  const double gate_bytes = 4.0 * static_cast<double>(m * k);
  row("linear", "compiled", times[0], bytes, 0);
  row("linear(silu(gate) * x)", "apart", times[1], bytes + gate_bytes, apart.statistics().last.kernels);
  row("linear(silu(gate) * x)", "compiled", times[2], bytes + gate_bytes, attached.statistics().last.kernels);
}

void add_shape(std::vector<CompileRow>& rows, int64_t m, int64_t k, int64_t n, DType dtype) {
  const std::string shape = fmt::format("{}x{}x{} {}", m, k, n, name_of(dtype));
  const Tensor x = random({m, k}, dtype), w = random({n, k}, dtype), v = random({n, k}, dtype),
               bias = random({n}, dtype), residual = random({m, n}, dtype);
  const auto item = static_cast<double>(itemsize(dtype));
  const double flops = 2.0 * static_cast<double>(m * n * k), bytes = item * static_cast<double>(m * k + n * k + m * n);
  add_rows(
      rows, "linear, bias, gelu", shape, flops, bytes + item * static_cast<double>(n),
      [](const Tensor& a, const Tensor& b, const Tensor& c) { return gelu(add(linear(a, b), c), GeluForm::tanh); }, x,
      w, bias);
  add_rows(
      rows, "linear, residual", shape, flops, bytes + item * static_cast<double>(m * n),
      [](const Tensor& a, const Tensor& b, const Tensor& c) { return add(linear(a, b), c); }, x, w, residual);
  add_rows(
      rows, "silu(gate) * up", shape, 2 * flops, bytes + item * static_cast<double>(n * k),
      [](const Tensor& a, const Tensor& b, const Tensor& c) { return mul(silu(linear(a, b)), linear(a, c)); }, x, w, v);
}

}  // namespace

std::vector<CompileRow> run_product_bench(int threads) {
  RankContext::current().set_threads(threads);
  std::vector<CompileRow> rows;
  add_shape(rows, 512, 256, 1024, DType::f32);
  add_shape(rows, 256, 1024, 4096, DType::f32);
  add_shape(rows, 8192, 128, 512, DType::f32);
  add_shape(rows, 256, 1024, 4096, DType::bf16);
  add_kernel_before(rows, 512, 1024, 256);
  add_kernel_before(rows, 8192, 512, 128);
  return rows;
}

}  // namespace tutti::bench

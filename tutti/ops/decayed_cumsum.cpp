#include "tutti/ops/decayed_cumsum.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/pad.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

struct DecayAttrs {
  int64_t dim;
  bool from_end;
  static constexpr auto fields() {
    return field_list(field::number<&DecayAttrs::dim>("dim"), field::number<&DecayAttrs::from_end>("from_end"));
  }
};

void infer(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }

// A dense tensor as [outer, length, inner], where `length` is the size of the dim.
struct Lines {
  int64_t outer = 1, length = 1, inner = 1;
  Lines(const Extents& sizes, int64_t dim) {
    for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d)
      (d < dim ? outer : d > dim ? inner : length) *= sizes[static_cast<size_t>(d)];
  }
};

template <class Value>
auto widen(Value v) {
  if constexpr (std::is_arithmetic_v<Value>) return v;
  else return to_float(v);
}

// The lines [first, first + count) of one outer index, side by side.
template <class Value>
void sum_lines(const Lines& lines, bool from_end, const Value* x, const Value* decay, Value* y, int64_t count) {
  using Sum = decltype(widen(Value{}));
  std::vector<Sum> sums(static_cast<size_t>(count));
  for (int64_t step = 0; step < lines.length; ++step) {
    const int64_t at = (from_end ? lines.length - 1 - step : step) * lines.inner,
                  link = from_end ? at + lines.inner : at;
    for (int64_t j = 0; j < count; ++j) {
      Sum& sum = sums[static_cast<size_t>(j)];
      const Sum term = widen(x[at + j]);
      sum = step == 0 ? term : term + widen(decay[link + j]) * sum;
      if constexpr (std::is_arithmetic_v<Value>) y[at + j] = sum;
      else store_from_double(y + at + j, dtype_of<Value>, static_cast<double>(sum));
    }
  }
}

// A kernel and not a recipe: recipes have no scan over pairs of operands.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const DecayAttrs& a = call.attrs.as<DecayAttrs>();
  const Tensor x = to_contiguous(call[0]), decay = to_contiguous(call[1]);
  const Lines lines(x.extents(), a.dim);
  if (x.numel() == 0) return;
  visit_dtype(x.dtype(), [&]<class Value>() {
    if constexpr (!std::is_integral_v<Value>) {
      const int64_t grain = std::max<int64_t>(kParallelGrain / lines.length, 1);
      ThreadPool::current().parallel_for(lines.outer * lines.inner, grain, [&](int64_t begin, int64_t end) {
        while (begin < end) {
          const int64_t column = begin % lines.inner, count = std::min(end - begin, lines.inner - column);
          const int64_t start = begin / lines.inner * lines.length * lines.inner + column;
          sum_lines(lines, a.from_end, static_cast<const Value*>(x.raw_data()) + start,
                    static_cast<const Value*>(decay.raw_data()) + start,
                    static_cast<Value*>(outputs[0].raw_data()) + start, count);
          begin += count;
        }
      });
    }
  });
}

// Every y_i by itself: each term of it decays once for every step that it is away.
void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const DecayAttrs& a = call.attrs.as<DecayAttrs>();
  const std::vector<double> x = facets::values(call[0], call[0].extents()),
                            decay = facets::values(call[1], call[0].extents());
  const Lines lines(call[0].extents(), a.dim);
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const int64_t position = i / lines.inner % lines.length;
    double sum = x[static_cast<size_t>(i)], factor = 1;
    for (int64_t away = 1; a.from_end ? position + away < lines.length : away <= position; ++away) {
      const int64_t at = a.from_end ? i + away * lines.inner : i - away * lines.inner,
                    link = a.from_end ? at : at + lines.inner;
      factor *= decay[static_cast<size_t>(link)];
      sum += factor * x[static_cast<size_t>(at)];
    }
    facets::write_double(outputs[0], i, sum);
  }
}

// Elements 0 to n - 2 along `dim`, moved to places 1 to n - 1, behind a zero.
Tensor moved_up(const Tensor& x, int64_t dim) { return slice(pad(x, dim, 1, 0), dim, 0, x.size(dim)); }

// dx is the same sum of g from the other end. decay_i takes part in one product, of the result beside it and of what
// reaches there.
void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const auto [dim, from_end] = c.attrs.as<DecayAttrs>();
  const Tensor& g = c.grads[0];
  const Tensor dx = decayed_cumsum(g, cast(c.inputs[1], g.dtype()), dim, !from_end);
  if (c.needs(0)) grads[0] = dx;
  if (!c.needs(1)) return;
  const Tensor y = cast(c.outputs[0], g.dtype());
  grads[1] = from_end ? mul(moved_up(dx, dim), y) : mul(dx, moved_up(y, dim));
}

std::vector<Sample> samples() {
  std::vector<Sample> samples;
  const auto add = [&](const char* name, const Extents& sizes, int64_t dim, bool from_end, DType dtype = DType::f32) {
    samples.push_back({name,
                       {facets::sample_tensor(1, sizes, dtype), facets::sample_tensor(2, sizes, dtype, -1, 1)},
                       Attrs::of(DecayAttrs{dim, from_end})});
  };
  add("rows", {3, 19}, 1, false);
  add("rows_from_end", {3, 19}, 1, true);
  add("columns", {7, 5}, 0, false);
  add("middle_from_end", {2, 9, 3}, 1, true);
  add("f64", {4, 6}, 1, false, DType::f64);
  add("bf16", {4, 6}, 1, true, DType::bf16);
  add("one_element", {1}, 0, true);
  add("empty", {3, 0}, 1, false);
  add("no_rows", {0, 3}, 1, true);
  samples.push_back({"strided",
                     {facets::strided_copy(facets::sample_tensor(3, {3, 8})),
                      facets::strided_copy(facets::sample_tensor(4, {3, 8}, DType::f32, -1, 1))},
                     Attrs::of(DecayAttrs{1, false})});
  return samples;
}

const OpDef kDecayedCumsum{
    .name = "decayed_cumsum",
    .num_inputs = 2,
    .infer = infer,
    .reference = reference,
    .gradient = {.vjp = vjp, .saves_inputs = 0b10, .saves_outputs = 1},
    .kernel = kernel,
    .sharding =
        [](const OpCall& call) {
          return fmt::format("x[{0}] #d[{0}] -> y[{0}] | | lin",
                             facets::dim_letters(call[0].ndim(), 1u << call.attrs.as<DecayAttrs>().dim));
        },
    .recompute = Recompute::costly,
    .cost = [](const OpCall& call) -> Cost {
      return {.flops = 2 * static_cast<double>(call[0].numel()), .bytes = 3 * static_cast<double>(call[0].nbytes())};
    },
    .samples = samples,
};

}  // namespace

Tensor decayed_cumsum(const Tensor& x, const Tensor& decay, int64_t dim, bool from_end) {
  TUTTI_CHECK(is_floating(x.dtype()) && x.dtype() == decay.dtype() && x.sizes() == decay.sizes(),
              "decayed_cumsum: x is {}, decay is {}; expected floats of equal dtype and sizes", describe(x),
              describe(decay));
  return call_op(kDecayedCumsum, Attrs::of(DecayAttrs{normalize_dim(dim, x.ndim(), "decayed_cumsum"), from_end}), x,
                 decay);
}

}  // namespace tutti

TUTTI_OPS(decayed_cumsum, &kDecayedCumsum)

#include "tutti/ops/max_pool.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/pool_windows.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/squeeze.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using facets::PoolWindows;
using facets::volume;

const PoolWindows& windows_of(const OpCall& call) { return call.attrs.as<PoolWindows>(); }

template <class Value>
auto number(Value v) {
  if constexpr (std::is_arithmetic_v<Value>) return v;
  else return to_float(v);
}

// Integers in the order of the values: -0 equal to +0, NaN above all and equal to itself. Comparing them needs no branch.
int32_t order_of(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x), magnitude = bits & 0x7fffffff;
  return magnitude > 0x7f800000 ? INT32_MAX : bits < 0 ? -magnitude : magnitude;
}
int64_t order_of(double x) {
  const int64_t bits = std::bit_cast<int64_t>(x), magnitude = bits & INT64_MAX;
  return magnitude > 0x7ff0000000000000 ? INT64_MAX : bits < 0 ? -magnitude : magnitude;
}

// Of the windows of a line, some side by side: the offset in `in` of each window's maximum. `in` is the first element of the
// first window.
template <class Value>
void find_in_line(const Value* in, int64_t count, int64_t step, const std::vector<int64_t>& offsets, int64_t* found) {
  constexpr int64_t kTogether = 32;  // always so many, also where fewer windows are left: whole vectors
  using Number = decltype(number(Value{}));
  using Order = decltype(order_of(Number{}));
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    const int64_t n = std::min(kTogether, count - begin);
    Number values[kTogether] = {};
    Order most[kTogether], tap[kTogether] = {};
    std::fill(most, most + kTogether, std::numeric_limits<Order>::min());
    for (size_t t = 0; t < offsets.size(); ++t) {
      const Value* at = in + begin * step + offsets[t];
      for (int64_t j = 0; j < n; ++j) values[j] = number(at[j * step]);
      for (int64_t j = 0; j < kTogether; ++j) {
        const Order order = order_of(values[j]);
        const Order wins = -static_cast<Order>(order > most[j]);  // all bits: a choice would become a store under a mask
        tap[j] = (tap[j] & ~wins) | (static_cast<Order>(t) & wins);
        most[j] = std::max(order, most[j]);
      }
    }
    for (int64_t j = 0; j < n; ++j) found[begin + j] = (begin + j) * step + offsets[static_cast<size_t>(tap[j])];
  }
}

template <class Value>
void pool_planes(const PoolWindows& w, const Value* x, int64_t planes, Value* y, int64_t* indices) {
  const int64_t plane = volume(w.size), outputs = volume(w.output);
  const std::vector<int64_t> offsets = w.tap_offsets();
  ThreadPool::current().parallel_for(planes, std::max<int64_t>(kParallelGrain / (plane + 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Value* in = x + i * plane;
      const auto put = [&](int64_t output, int64_t best) {
        y[i * outputs + output] = in[best];
        indices[i * outputs + output] = best;
      };
      const auto one = [&](int64_t output, const facets::Taps(&taps)[3], const facets::Triple&) {
        int64_t best = -1;
        auto most = number(Value{});
        w.for_each_element(taps, [&](int64_t at) {
          const auto value = number(in[at]);
          if (best >= 0 && !(value > most) && !(value != value && most == most)) return;
          best = at, most = value;
        });
        put(output, best);
      };
      w.for_each_or_line(one, [&](int64_t output, int64_t count, int64_t first) {
        int64_t* found = indices + i * outputs + output;
        find_in_line(in + first, count, w.stride[2], offsets, found);
        for (int64_t j = 0; j < count; ++j) put(output + j, first + found[j]);
      });
    }
  });
}

// A kernel and not a recipe: windows at the border have fewer elements than others.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor x = to_contiguous(call[0]);
  const int64_t planes = x.extents()[0] * x.extents()[1];
  visit_dtype(x.dtype(), [&]<class Value>() {
    if constexpr (!std::is_integral_v<Value>)
      pool_planes(windows_of(call), static_cast<const Value*>(x.raw_data()), planes, static_cast<Value*>(outputs[0].raw_data()),
                  outputs[1].data<int64_t>());
  });
}

// Every element of x, in order, offers itself to every window it lies in.
void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const PoolWindows& w = windows_of(call);
  const Tensor x = to_contiguous(call[0]);
  const int64_t plane = volume(w.size), all = volume(w.output);
  for (int64_t i = 0; i < x.numel() / std::max<int64_t>(plane, 1); ++i) {
    for (int64_t o = 0; o < all; ++o) facets::write_int64(outputs[1], i * all + o, -1);
    for (int64_t at = 0; at < plane; ++at) {
      const int64_t position[3] = {at / w.size[2] / w.size[1], at / w.size[2] % w.size[1], at % w.size[2]};
      w.for_each([&](int64_t o, const facets::Taps(&taps)[3], const facets::Triple&) {
        for (size_t d = 0; d < 3; ++d) {
          if (position[d] < taps[d].first || position[d] >= taps[d].last || (position[d] - taps[d].first) % taps[d].step != 0) return;
        }
        const double value = facets::read_double(x, i * plane + at), best = facets::read_double(outputs[0], i * all + o);
        if (facets::read_int64(outputs[1], i * all + o) >= 0 && !(value > best) && !(std::isnan(value) && !std::isnan(best))) return;
        facets::write_double(outputs[0], i * all + o, value);
        facets::write_int64(outputs[1], i * all + o, at);
      });
    }
  }
}

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Shape& x = c.input_metas[0].sizes;
  const Tensor &g = c.grads[0], &indices = c.outputs[1];
  const int64_t plane = volume(c.attrs.as<PoolWindows>().size), outputs = volume(c.attrs.as<PoolWindows>().output);
  const Tensor start = zeros({x[0], x[1], plane}, g.dtype());
  grads[0] = reshape(scatter_add(start, 2, reshape(indices, {x[0], x[1], outputs}), reshape(g, {x[0], x[1], outputs})), x);
}

std::vector<Sample> samples() {
  using facets::sample_tensor;
  const auto attrs = [](const Dims& size, const facets::PoolSpec& spec) { return Attrs::of(facets::pool_windows("sample", size, spec)); };
  return {{"line", {sample_tensor(1, {2, 3, 11})}, attrs({11}, {{3}, {2}, {1}, {1}, false})},
          {"plane_ceil", {sample_tensor(2, {2, 2, 7, 6})}, attrs({7, 6}, {{3, 2}, {2, 3}, {1, 0}, {1}, true})},
          {"dilated_f64", {sample_tensor(3, {1, 2, 9, 8}, DType::f64)}, attrs({9, 8}, {{3, 2}, {1, 2}, {2, 1}, {2, 3}, false})},
          {"space", {sample_tensor(4, {2, 1, 4, 5, 3})}, attrs({4, 5, 3}, {{2}, {}, {0}, {1}, false})},
          {"adaptive", {sample_tensor(5, {2, 3, 7, 5})}, Attrs::of(facets::adaptive_windows("sample", {7, 5}, {3, 4}))},
          {"bf16", {sample_tensor(6, {1, 3, 10}, DType::bf16)}, attrs({10}, {{4}, {3}, {2}, {1}, false})},
          {"no_planes", {sample_tensor(7, {0, 3, 10})}, attrs({10}, {{4}, {3}, {2}, {1}, false})}};
}

const OpDef kMaxPool{
    .name = "max_pool",
    .num_inputs = 1,
    .num_outputs = 2,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const Shape sizes = facets::pooled_sizes(windows_of(call), call[0], windows_of(call).output);
          out.add(call[0].dtype(), sizes);
          out.add(DType::i64, sizes);
        },
    .reference = reference,
    .gradient = {.vjp = vjp, .saves_outputs = 0b10},
    .kernel = kernel,
    .sharding =
        [](const OpCall& call) {
          const PoolWindows& w = windows_of(call);
          return fmt::format("#x[{0}] -> y[{1}] #i[{1}]", facets::pool_letters(w, "XYZ"), facets::pool_letters(w, "PQR"));
        },
    .samples = samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

MaxPoolResult pool(const Tensor& x, const PoolWindows& w) {
  Tensor outputs[2];
  apply(kMaxPool, {&x, 1}, Attrs::of(w), outputs);
  return {outputs[0], outputs[1]};
}

// fn(x with a dim of images, its spatial sizes).
template <class Fn>
MaxPoolResult with_images(const char* where, int dims, const Tensor& x, Fn fn) {
  if (x.ndim() != dims + 1) return fn(x, facets::pooled_dims(where, x, dims));
  const Tensor one = unsqueeze(x, 0);
  const MaxPoolResult r = fn(one, facets::pooled_dims(where, one, dims));
  return {squeeze(r.values, 0), squeeze(r.indices, 0)};
}

MaxPoolResult max_pool(const char* where, int dims, const Tensor& x, const MaxPoolOptions& o) {
  return with_images(where, dims, x, [&](const Tensor& images, const Dims& size) {
    return pool(images, facets::pool_windows(where, size, {o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode}));
  });
}

MaxPoolResult adaptive_max_pool(const char* where, int dims, const Tensor& x, const Dims& output) {
  return with_images(where, dims, x,
                     [&](const Tensor& images, const Dims& size) { return pool(images, facets::adaptive_windows(where, size, output)); });
}

}  // namespace

MaxPoolResult max_pool1d_with_indices(const Tensor& x, const MaxPoolOptions& options) { return max_pool("max_pool1d", 1, x, options); }
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const MaxPoolOptions& options) { return max_pool("max_pool2d", 2, x, options); }
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const MaxPoolOptions& options) { return max_pool("max_pool3d", 3, x, options); }
Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options) { return max_pool("max_pool1d", 1, x, options).values; }
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options) { return max_pool("max_pool2d", 2, x, options).values; }
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options) { return max_pool("max_pool3d", 3, x, options).values; }

MaxPoolResult adaptive_max_pool1d_with_indices(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool1d", 1, x, output);
}
MaxPoolResult adaptive_max_pool2d_with_indices(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool2d", 2, x, output);
}
MaxPoolResult adaptive_max_pool3d_with_indices(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool3d", 3, x, output);
}
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output) { return adaptive_max_pool("adaptive_max_pool1d", 1, x, output).values; }
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output) { return adaptive_max_pool("adaptive_max_pool2d", 2, x, output).values; }
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output) { return adaptive_max_pool("adaptive_max_pool3d", 3, x, output).values; }

Tensor max_unpool(const Tensor& x, const Tensor& indices, const Dims& sizes) {
  const int lead = x.ndim() - sizes.ndim();
  TUTTI_CHECK(x.sizes() == indices.sizes() && sizes.ndim() >= 1 && (lead == 1 || lead == 2),
              "max_unpool: x is {}, the indices {}, for {} spatial sizes; expected equal sizes, [N, C, P...] or [C, P...]", describe(x),
              describe(indices), sizes.ndim());
  Shape flat, result;
  int64_t plane = 1;
  for (int d = 0; d < lead; ++d) flat.push_back(x.size(d)), result.push_back(x.size(d));
  for (const int64_t size : sizes) result.push_back(size), plane *= size;
  Shape to = flat;
  flat.push_back(-1);
  to.push_back(plane);
  return reshape(scatter(zeros(to, x.dtype()), lead, reshape(indices, flat), reshape(x, flat)), result);
}

}  // namespace tutti

TUTTI_OPS(max_pool, &kMaxPool)

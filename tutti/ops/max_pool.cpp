#include "tutti/ops/max_pool.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/pooling/pool_windows.h"
#include "tutti/ops/pooling/window_maxima.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scatter.h"
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

// Windows of many sizes, and integers: one by one.
template <class Value>
void find_maxima(const PoolWindows& w, const Value* in, int64_t* indices) {
  w.for_each([&](int64_t output, const facets::Taps(&taps)[3], const facets::Triple&) {
    int64_t best = -1;
    auto most = number(Value{});
    w.for_each_element(taps, [&](int64_t at) {
      const auto value = number(in[at]);
      if (best >= 0 && !(value > most) && !(value != value && most == most)) return;
      best = at, most = value;
    });
    indices[output] = best;
  });
}

template <class Value>
void pool_planes(const PoolWindows& w, const Value* x, int64_t planes, Value* y, int64_t* indices) {
  const int64_t plane = volume(w.size), outputs = volume(w.output);
  ThreadPool::current().parallel_for(
      planes, std::max<int64_t>(kParallelGrain / (plane + 1), 1), [&](int64_t begin, int64_t end) {
        constexpr bool one_by_one = std::is_integral_v<Value>;
        if constexpr (!one_by_one) {
          if (!w.adaptive) facets::find_window_maxima(w, x + begin * plane, end - begin, indices + begin * outputs);
        }
        for (int64_t i = begin; i < end; ++i) {
          const Value* in = x + i * plane;
          if (one_by_one || w.adaptive) find_maxima(w, in, indices + i * outputs);
          for (int64_t o = i * outputs; o < (i + 1) * outputs; ++o) y[o] = in[indices[o]];
        }
      });
}

// A kernel and not a recipe: windows at the border have fewer elements than others.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor x = to_contiguous(call[0]);
  const int64_t planes = x.extents()[0] * x.extents()[1];
  visit_dtype(x.dtype(), [&]<class Value>() {
    if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, bfloat16> || std::is_same_v<Value, float16>)
      pool_planes(windows_of(call), static_cast<const Value*>(x.raw_data()), planes,
                  static_cast<Value*>(outputs[0].raw_data()), outputs[1].data<int64_t>());
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
          if (position[d] < taps[d].first || position[d] >= taps[d].last ||
              (position[d] - taps[d].first) % taps[d].step != 0)
            return;
        }
        const int64_t from = i * plane + at, to = i * all + o;
        const bool is_first = facets::read_int64(outputs[1], to) < 0;
        if (is_floating(x.dtype())) {
          const double value = facets::read_double(x, from), best = facets::read_double(outputs[0], to);
          if (!is_first && !(value > best) && !(std::isnan(value) && !std::isnan(best))) return;
          facets::write_double(outputs[0], to, value);
        } else {
          if (!is_first && facets::read_int64(x, from) <= facets::read_int64(outputs[0], to)) return;
          facets::write_int64(outputs[0], to, facets::read_int64(x, from));
        }
        facets::write_int64(outputs[1], to, at);
      });
    }
  }
}

extern const OpDef kMaxPool, kMaxPoolBackward;

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (c.grads[0].defined()) grads[0] = call_op(kMaxPoolBackward, c.attrs, c.grads[0], c.outputs[1]);
}

// ---- gradient -------------------------------------------------------------------------------------------------------

// Adds element o of a plane of outputs to element indices[o] of the plane of x, in ascending order of o.
template <class Sum, class Add>
void add_to_chosen(const PoolWindows& w, const Tensor& g, const Tensor& indices, Add add) {
  const int64_t plane = volume(w.size), outputs = volume(w.output), planes = g.extents()[0] * g.extents()[1];
  const int64_t* picks = indices.data<int64_t>();
  ThreadPool::current().parallel_for(
      planes, std::max<int64_t>(kParallelGrain / (plane + 1), 1), [&](int64_t begin, int64_t end) {
        std::vector<Sum> sums(static_cast<size_t>(plane));
        for (int64_t i = begin; i < end; ++i) {
          std::fill(sums.begin(), sums.end(), Sum{0});
          for (int64_t o = i * outputs; o < (i + 1) * outputs; ++o) {
            TUTTI_CHECK(picks[o] >= 0 && picks[o] < plane,
                        "max_pool_backward: index {} is outside the plane of {} elements", picks[o], plane);
            sums[static_cast<size_t>(picks[o])] += static_cast<Sum>(add.value(o));
          }
          for (int64_t at = 0; at < plane; ++at) add.store(i * plane + at, sums[static_cast<size_t>(at)]);
        }
      });
}

template <class Value>
struct ChosenElements {
  const Value* from;
  Value* to;
  auto value(int64_t o) const { return number(from[o]); }
  template <class Sum>
  void store(int64_t at, Sum sum) const {
    if constexpr (std::is_arithmetic_v<Value>) to[at] = static_cast<Value>(sum);
    else store_from_double(to + at, dtype_of<Value>, static_cast<double>(sum));
  }
};

// A kernel and not a recipe: any number of outputs add to one element.
void kernel_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor g = to_contiguous(call[0]), indices = to_contiguous(call[1]);
  visit_dtype(g.dtype(), [&]<class Value>() {
    if constexpr (!std::is_integral_v<Value>)
      add_to_chosen<std::conditional_t<std::is_same_v<Value, double>, double, float>>(
          windows_of(call), g, indices,
          ChosenElements<Value>{static_cast<const Value*>(g.raw_data()), static_cast<Value*>(outputs[0].raw_data())});
  });
}

void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const PoolWindows& w = windows_of(call);
  const Tensor g = to_contiguous(call[0]), indices = to_contiguous(call[1]);
  std::vector<double> sums(static_cast<size_t>(outputs[0].numel()));
  for (int64_t o = 0; o < g.numel(); ++o)
    sums[static_cast<size_t>(o / volume(w.output) * volume(w.size) + indices.data<int64_t>()[o])] +=
        facets::read_double(g, o);
  for (size_t i = 0; i < sums.size(); ++i) facets::write_double(outputs[0], static_cast<int64_t>(i), sums[i]);
}

// The elements that were chosen.
void vjp_backward(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Shape& y = c.input_metas[0].sizes;
  const int64_t plane = volume(c.attrs.as<PoolWindows>().size), outputs = volume(c.attrs.as<PoolWindows>().output);
  grads[0] =
      reshape(gather(reshape(c.grads[0], {y[0], y[1], plane}), 2, reshape(c.inputs[1], {y[0], y[1], outputs})), y);
}

// ---- samples --------------------------------------------------------------------------------------------------------

std::vector<Sample> samples() {
  using facets::sample_tensor;
  const auto attrs = [](const Dims& size, const facets::PoolSpec& spec) {
    return Attrs::of(facets::pool_windows("sample", size, spec));
  };
  return {{"line", {sample_tensor(1, {2, 3, 11})}, attrs({11}, {{3}, {2}, {1}, {1}, false})},
          {"plane_ceil", {sample_tensor(2, {2, 2, 7, 6})}, attrs({7, 6}, {{3, 2}, {2, 3}, {1, 0}, {1}, true})},
          {"dilated_f64",
           {sample_tensor(3, {1, 2, 9, 8}, DType::f64)},
           attrs({9, 8}, {{3, 2}, {1, 2}, {2, 1}, {2, 3}, false})},
          {"space", {sample_tensor(4, {2, 1, 4, 5, 3})}, attrs({4, 5, 3}, {{2}, {}, {0}, {1}, false})},
          {"adaptive", {sample_tensor(5, {2, 3, 7, 5})}, Attrs::of(facets::adaptive_windows("sample", {7, 5}, {3, 4}))},
          {"bf16", {sample_tensor(6, {1, 3, 10}, DType::bf16)}, attrs({10}, {{4}, {3}, {2}, {1}, false})},
          {"integers",
           {sample_tensor(8, {2, 2, 7, 6}, DType::i64, -9, 9)},
           attrs({7, 6}, {{3, 2}, {2, 1}, {1}, {1, 2}, false})},
          {"adaptive_bytes",
           {sample_tensor(9, {2, 2, 7}, DType::u8, 0, 9)},
           Attrs::of(facets::adaptive_windows("sample", {7}, {3}))},
          {"no_planes", {sample_tensor(7, {0, 3, 10})}, attrs({10}, {{4}, {3}, {2}, {1}, false})}};
}

// The samples of floats, with cotangents in the place of x.
std::vector<Sample> samples_backward() {
  std::vector<Sample> list;
  for (Sample& s : samples()) {
    const Tensor& x = s.inputs[0];
    if (!is_floating(x.dtype())) continue;
    const Extents sizes =
        concrete(facets::pooled_sizes(s.attrs.as<PoolWindows>(), x, s.attrs.as<PoolWindows>().output));
    const Tensor outputs[] = {Tensor::empty(sizes, x.dtype()), Tensor::empty(sizes, DType::i64)};
    reference({kMaxPool, s.inputs, s.attrs}, outputs);
    list.push_back({s.name, {facets::sample_tensor(11, sizes, x.dtype()), outputs[1]}, s.attrs});
  }
  return list;
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
          return fmt::format("#x[{0}] -> y[{1}] #i[{1}]", facets::pool_letters(w, "XYZ"),
                             facets::pool_letters(w, "PQR"));
        },
    .samples = samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

const OpDef kMaxPoolBackward{
    .name = "max_pool_backward",
    .num_inputs = 2,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          out.add(call[0].dtype(), facets::pooled_sizes(windows_of(call), call[0], windows_of(call).size));
        },
    .reference = reference_backward,
    .gradient = {.vjp = vjp_backward, .saves_inputs = 0b10},
    .kernel = kernel_backward,
    .sharding =
        [](const OpCall& call) {
          const PoolWindows& w = windows_of(call);
          return fmt::format("g[{0}] #i[{0}] -> d[{1}] | | lin", facets::pool_letters(w, "PQR"),
                             facets::pool_letters(w, "XYZ"));
        },
    .samples = samples_backward,
};

MaxPoolResult pool(const Tensor& x, const PoolWindows& w) {
  Tensor outputs[2];
  apply(kMaxPool, {&x, 1}, Attrs::of(w), outputs);
  return {outputs[0], outputs[1]};
}

// fn(x with a dim of images, its spatial sizes).
template <class Fn>
MaxPoolResult with_images(const char* where, int dims, const Tensor& x, Fn fn) {
  constexpr bool takes_integers = true;
  if (x.ndim() != dims + 1) return fn(x, facets::pooled_dims(where, x, dims, takes_integers));
  const Tensor one = unsqueeze(x, 0);
  const MaxPoolResult r = fn(one, facets::pooled_dims(where, one, dims, takes_integers));
  return {squeeze(r.values, 0), squeeze(r.indices, 0)};
}

MaxPoolResult max_pool(const char* where, int dims, const Tensor& x, const MaxPoolOptions& o) {
  return with_images(where, dims, x, [&](const Tensor& images, const Dims& size) {
    return pool(images, facets::pool_windows(where, size, {o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode}));
  });
}

MaxPoolResult adaptive_max_pool(const char* where, int dims, const Tensor& x, const Dims& output) {
  return with_images(where, dims, x, [&](const Tensor& images, const Dims& size) {
    return pool(images, facets::adaptive_windows(where, size, output));
  });
}

}  // namespace

MaxPoolResult max_pool1d_with_indices(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool1d", 1, x, options);
}
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool2d", 2, x, options);
}
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool3d", 3, x, options);
}
Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool1d", 1, x, options).values;
}
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool2d", 2, x, options).values;
}
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool3d", 3, x, options).values;
}

MaxPoolResult adaptive_max_pool1d_with_indices(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool1d", 1, x, output);
}
MaxPoolResult adaptive_max_pool2d_with_indices(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool2d", 2, x, output);
}
MaxPoolResult adaptive_max_pool3d_with_indices(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool3d", 3, x, output);
}
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool1d", 1, x, output).values;
}
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool2d", 2, x, output).values;
}
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output) {
  return adaptive_max_pool("adaptive_max_pool3d", 3, x, output).values;
}

Tensor max_unpool(const Tensor& x, const Tensor& indices, const Dims& sizes) {
  const int lead = x.ndim() - sizes.ndim();
  TUTTI_CHECK(
      x.sizes() == indices.sizes() && sizes.ndim() >= 1 && (lead == 1 || lead == 2),
      "max_unpool: x is {}, the indices {}, for {} spatial sizes; expected equal sizes, [N, C, P...] or [C, P...]",
      describe(x), describe(indices), sizes.ndim());
  Shape flat, result;
  int64_t plane = 1;
  for (int d = 0; d < lead; ++d) flat.push_back(x.size(d)), result.push_back(x.size(d));
  for (const int64_t size : sizes) result.push_back(size), plane *= size;
  Shape to = flat;
  flat.push_back(-1);
  to.push_back(plane);
  return reshape(scatter(full_beside(x, to, 0, x.dtype()), lead, reshape(indices, flat), reshape(x, flat)), result);
}

}  // namespace tutti

TUTTI_OPS(max_pool, &::tutti::kMaxPool, &::tutti::kMaxPoolBackward)

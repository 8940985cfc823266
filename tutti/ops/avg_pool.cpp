#include "tutti/ops/avg_pool.h"

#include <algorithm>
#include <vector>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/tree_sum.h"
#include "tutti/ops/pooling/pool_windows.h"
#include "tutti/ops/squeeze.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using facets::PoolWindows;
using facets::Taps;
using facets::Triple;
using facets::volume;

struct AvgAttrs {
  PoolWindows w;
  int64_t include_pad = 0;
  int64_t divisor = 0;  // 0: the number of elements

  int64_t divisor_of(const Taps (&taps)[3], const Triple& o) const {
    if (divisor != 0) return divisor;
    int64_t n = 1;
    for (size_t d = 0; d < 3; ++d) n *= include_pad ? w.padded_count(d, o[d]) : taps[d].count();
    return n;
  }
  static constexpr auto fields() {
    return field_list(field::nested<&AvgAttrs::w>("w"), field::number<&AvgAttrs::include_pad>("include_pad"),
                      field::number<&AvgAttrs::divisor>("divisor"));
  }
};
const AvgAttrs& attrs_of(const OpCall& call) { return call.attrs.as<AvgAttrs>(); }

template <class Value>
auto widen(Value v) {
  if constexpr (std::is_arithmetic_v<Value>) return v;
  else return to_float(v);
}

template <class Sum, class Value>
void store(Value* target, Sum value) {
  if constexpr (std::is_arithmetic_v<Value>) *target = static_cast<Value>(value);
  else store_from_double(target, dtype_of<Value>, static_cast<double>(value));
}

// body(plane number, memory for a window or plane) for the planes of x.
template <class Sum, class Body>
void for_each_plane(const Tensor& x, const PoolWindows& w, Body body) {
  const int64_t planes = x.extents()[0] * x.extents()[1], elements = std::max(volume(w.size), volume(w.output));
  ThreadPool::current().parallel_for(planes, std::max<int64_t>(kParallelGrain / (elements + 1), 1),
                                     [&](int64_t begin, int64_t end) {
                                       std::vector<Sum> memory(static_cast<size_t>(volume(w.size)));
                                       for (int64_t i = begin; i < end; ++i) body(i, memory.data());
                                     });
}

// tree_sum() has these lanes and leaves.
constexpr int64_t kLanes = 16, kLeaf = 512;

// Windows of a line that have all their taps, at most a leaf of them: the tree of tree_sum, window beside window.
// kStep is the step if that is 1, else 0.
template <int64_t kStep, class Sum, class Value>
void mean_of_line(const Value* in, int64_t count, int64_t any_step, const std::vector<int64_t>& offsets, Sum divisor,
                  Value* out) {
  const int64_t step = kStep != 0 ? kStep : any_step;
  constexpr int64_t kTogether = 64;
  const int64_t taps = static_cast<int64_t>(offsets.size());
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    const int64_t n = std::min(kTogether, count - begin);
    Sum lanes[kLanes][kTogether];
    for (int64_t t = 0; t < std::min(taps, kLanes); ++t) {
      const Value* at = in + begin * step + offsets[static_cast<size_t>(t)];
      for (int64_t j = 0; j < n; ++j) lanes[t][j] = widen(at[j * step]);
    }
    for (int64_t t = kLanes; t < taps; ++t) {
      const Value* at = in + begin * step + offsets[static_cast<size_t>(t)];
      Sum* lane = lanes[t % kLanes];
      for (int64_t j = 0; j < n; ++j) lane[j] += widen(at[j * step]);
    }
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t t = 0; t < width && t + width < taps; ++t) {
        for (int64_t j = 0; j < n; ++j) lanes[t][j] += lanes[t + width][j];
      }
    }
    for (int64_t j = 0; j < n; ++j) store(out + begin + j, lanes[0][j] / divisor);
  }
}

template <class Value>
void run_forward(const OpCall& call, const Tensor& x, const Tensor& y) {
  using Sum = std::conditional_t<std::is_same_v<Value, double>, double, float>;
  const AvgAttrs& a = attrs_of(call);
  const std::vector<int64_t> offsets = a.w.tap_offsets();
  const int64_t taps = volume(a.w.kernel);
  for_each_plane<Sum>(x, a.w, [&](int64_t plane, Sum* window) {
    const Value* in = static_cast<const Value*>(x.raw_data()) + plane * volume(a.w.size);
    Value* out = static_cast<Value*>(y.raw_data()) + plane * volume(a.w.output);
    const auto one = [&](int64_t o, const Taps(&all)[3], const Triple& at) {
      int64_t n = 0;
      a.w.for_each_element(all, [&](int64_t i) { window[n++] = widen(in[i]); });
      const Sum sum = facets::tree_sum<Sum>(0, n, [&](int64_t i) { return window[i]; });
      store(out + o, sum / static_cast<Sum>(a.divisor_of(all, at)));
    };
    if (taps > kLeaf) {
      a.w.for_each(one);
      return;
    }
    const Sum divisor = static_cast<Sum>(a.divisor != 0 ? a.divisor : taps);
    a.w.for_each_or_line(one, [&](int64_t o, int64_t count, int64_t first) {
      if (a.w.stride[2] == 1) mean_of_line<1>(in + first, count, 1, offsets, divisor, out + o);
      else mean_of_line<0>(in + first, count, a.w.stride[2], offsets, divisor, out + o);
    });
  });
}

// Among the windows over one element, the lower comes first.
template <class Value>
void run_backward(const OpCall& call, const Tensor& g, const Tensor& dx) {
  using Sum = std::conditional_t<std::is_same_v<Value, double>, double, float>;
  const AvgAttrs& a = attrs_of(call);
  for_each_plane<Sum>(g, a.w, [&](int64_t plane, Sum* sums) {
    const int64_t size = volume(a.w.size);
    const Value* in = static_cast<const Value*>(g.raw_data()) + plane * volume(a.w.output);
    Value* out = static_cast<Value*>(dx.raw_data()) + plane * size;
    std::fill(sums, sums + size, static_cast<Sum>(facets::kSumIdentity));
    a.w.for_each([&](int64_t o, const Taps(&taps)[3], const Triple& at) {
      const Sum share = widen(in[o]) / static_cast<Sum>(a.divisor_of(taps, at));
      a.w.for_each_element(taps, [&](int64_t i) { sums[i] += share; });
    });
    for (int64_t i = 0; i < size; ++i) store(out + i, sums[i]);
  });
}

void reference_forward(const OpCall& call, std::span<const Tensor> outputs) {
  const AvgAttrs& a = attrs_of(call);
  const Tensor x = to_contiguous(call[0]);
  const int64_t size = volume(a.w.size), all = volume(a.w.output);
  for (int64_t plane = 0; plane < x.extents()[0] * x.extents()[1]; ++plane) {
    a.w.for_each([&](int64_t o, const Taps(&taps)[3], const Triple& at) {
      double sum = 0;
      a.w.for_each_element(taps, [&](int64_t i) { sum += facets::read_double(x, plane * size + i); });
      facets::write_double(outputs[0], plane * all + o, sum / static_cast<double>(a.divisor_of(taps, at)));
    });
  }
}

void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const AvgAttrs& a = attrs_of(call);
  const Tensor g = to_contiguous(call[0]);
  const int64_t size = volume(a.w.size), all = volume(a.w.output);
  std::vector<double> sums(static_cast<size_t>(outputs[0].numel()), facets::kSumIdentity);
  for (int64_t plane = 0; plane < g.extents()[0] * g.extents()[1]; ++plane) {
    a.w.for_each([&](int64_t o, const Taps(&taps)[3], const Triple& at) {
      const double share = facets::read_double(g, plane * all + o) / static_cast<double>(a.divisor_of(taps, at));
      a.w.for_each_element(taps, [&](int64_t i) { sums[static_cast<size_t>(plane * size + i)] += share; });
    });
  }
  for (size_t i = 0; i < sums.size(); ++i) facets::write_double(outputs[0], static_cast<int64_t>(i), sums[i]);
}

// Calls run(x) with the elements' type.
template <class Run>
void by_type(const OpCall& call, Run run) {
  const Tensor x = to_contiguous(call[0]);
  visit_dtype(x.dtype(), [&]<class Value>() {
    if constexpr (!std::is_integral_v<Value>) run.template operator()<Value>(x);
  });
}

// Samples of both ops: `backward` has the sizes of the result.
std::vector<Sample> samples(bool backward) {
  std::vector<Sample> list;
  const auto add = [&](const char* name, const PoolWindows& w, DType dtype, int64_t images, bool include_pad = true,
                       int64_t divisor = 0) {
    Extents sizes = {images, 2};
    for (size_t d = static_cast<size_t>(3 - w.dims); d < 3; ++d) sizes.push_back((backward ? w.output : w.size)[d]);
    list.push_back({name, {facets::sample_tensor(1, sizes, dtype)}, Attrs::of(AvgAttrs{w, include_pad, divisor})});
  };
  const auto windows = [](const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil) {
    return facets::pool_windows("sample", size, {kernel, stride, padding, {1}, ceil});
  };
  add("line", windows({11}, {3}, {2}, {1}, false), DType::f32, 2);
  add("ceil_without_padding", windows({7, 6}, {3, 2}, {2, 3}, {1, 0}, true), DType::f32, 2, false);
  add("ceil_with_padding", windows({7, 6}, {3, 2}, {2, 3}, {1, 1}, true), DType::f32, 2);
  add("divisor_f64", windows({6, 7}, {3}, {1}, {1}, false), DType::f64, 1, true, 5);
  add("space", windows({4, 5, 3}, {2}, {}, {0}, false), DType::f32, 2);
  add("adaptive", facets::adaptive_windows("sample", {7, 5}, {3, 4}), DType::f32, 2, false);
  add("bf16", windows({10}, {4}, {3}, {2}, false), DType::bf16, 1);
  add("no_planes", windows({10}, {4}, {3}, {2}, false), DType::f32, 0);
  return list;
}

std::string sharding(const OpCall& call, const char* from, const char* to) {
  const PoolWindows& w = attrs_of(call).w;
  return fmt::format("x[{}] -> y[{}] | | lin", facets::pool_letters(w, from), facets::pool_letters(w, to));
}

extern const OpDef kAvgPool, kAvgPoolBackward;

const OpDef kAvgPool{
    .name = "avg_pool",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          out.add(call[0].dtype(), facets::pooled_sizes(attrs_of(call).w, call[0], attrs_of(call).w.output));
        },
    .reference = reference_forward,
    .gradient = {.vjp = [](const VjpCall& c,
                           std::span<Tensor> grads) { grads[0] = call_op(kAvgPoolBackward, c.attrs, c.grads[0]); }},
    // A kernel and not a recipe: windows at the border have fewer elements than others.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          by_type(call, [&]<class Value>(const Tensor& x) { run_forward<Value>(call, x, outputs[0]); });
        },
    .sharding = [](const OpCall& call) { return sharding(call, "XYZ", "PQR"); },
    .samples = [] { return samples(false); },
};

const OpDef kAvgPoolBackward{
    .name = "avg_pool_backward",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          out.add(call[0].dtype(), facets::pooled_sizes(attrs_of(call).w, call[0], attrs_of(call).w.size));
        },
    .reference = reference_backward,
    .gradient = {.vjp = [](const VjpCall& c,
                           std::span<Tensor> grads) { grads[0] = call_op(kAvgPool, c.attrs, c.grads[0]); }},
    // A kernel and not a recipe: the number of windows over an element differs.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          by_type(call, [&]<class Value>(const Tensor& g) { run_backward<Value>(call, g, outputs[0]); });
        },
    .sharding = [](const OpCall& call) { return sharding(call, "PQR", "XYZ"); },
    .samples = [] { return samples(true); },
};

// make(spatial sizes) gives the attrs.
template <class Make>
Tensor pool(const char* where, int dims, const Tensor& x, Make make) {
  if (x.ndim() == dims + 1) return squeeze(pool(where, dims, unsqueeze(x, 0), make), 0);
  return call_op(kAvgPool, Attrs::of(make(facets::pooled_dims(where, x, dims))), x);
}

Tensor avg_pool(const char* where, int dims, const Tensor& x, const AvgPoolOptions& o) {
  TUTTI_CHECK(o.divisor_override != 0, "{}: divisor_override is 0; expected another number", where);
  return pool(where, dims, x, [&](const Dims& size) {
    return AvgAttrs{facets::pool_windows(where, size, {o.kernel, o.stride, o.padding, {1}, o.ceil_mode}),
                    o.count_include_pad, o.divisor_override.value_or(0)};
  });
}

Tensor adaptive_avg_pool(const char* where, int dims, const Tensor& x, const Dims& output) {
  return pool(where, dims, x,
              [&](const Dims& size) { return AvgAttrs{facets::adaptive_windows(where, size, output)}; });
}

}  // namespace

Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options) { return avg_pool("avg_pool1d", 1, x, options); }
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options) { return avg_pool("avg_pool2d", 2, x, options); }
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options) { return avg_pool("avg_pool3d", 3, x, options); }
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output) {
  return adaptive_avg_pool("adaptive_avg_pool1d", 1, x, output);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output) {
  return adaptive_avg_pool("adaptive_avg_pool2d", 2, x, output);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output) {
  return adaptive_avg_pool("adaptive_avg_pool3d", 3, x, output);
}

}  // namespace tutti

TUTTI_OPS(avg_pool, &::tutti::kAvgPool, &::tutti::kAvgPoolBackward)

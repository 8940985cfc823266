#include "tutti/ops/conv/conv_products.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/gemm/gemm.h"
#include "tutti/ops/conv/depthwise.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {
namespace {

// The matrices of an image and a group are columns [C / groups * taps, P], weight [O / groups, C / groups * taps], y [O
// / groups, P].

// An image and a group, and the addresses that belong to them; all tensors dense.
struct Place {
  int64_t image, group, groups;
  const char* of(const Tensor& t, int64_t channels, int64_t plane) const {  // [N, groups * channels, plane]
    return static_cast<const char*>(t.raw_data()) + (image * groups + group) * channels * plane * itemsize(t.dtype());
  }
  const char* of_weight(const Tensor& w) const {
    return static_cast<const char*>(w.raw_data()) + group * (w.numel() / groups) * itemsize(w.dtype());
  }
};

constexpr int64_t kTile = 512;  // outputs whose columns are made together: they stay in the second-level cache
constexpr int64_t kColumnBytes = 16 << 20;  // of the columns of the weight's gradient that are made at once

// Memory of the allocator, which keeps it from call to call.
Tensor buffer(int64_t elements, DType dtype) { return Tensor::empty({elements}, dtype); }
char* bytes_of(const Tensor& t) { return static_cast<char*>(t.raw_data()); }

}  // namespace

void conv_forward(const ConvGeometry& g, const Tensor& any_x, const Tensor& any_w, const Tensor& y) {
  const Tensor x = to_contiguous(any_x), w = to_contiguous(any_w);
  const int64_t channels = w.extents()[1], features = w.extents()[0] / g.groups, positions = volume(g.output),
                k = channels * volume(g.kernel);
  if (y.numel() == 0) return;
  if (is_depthwise(g, x, w, y)) return depthwise_forward(g, x, w, y);
  const int64_t tiles = (positions + kTile - 1) / kTile, images = x.extents()[0];
  const codegen::ContractionTree tree = codegen::ContractionTree::halving(k);
  ThreadPool::current().parallel_for(images * g.groups * tiles, 1, [&](int64_t first_task, int64_t last_task) {
    const Tensor columns = buffer(g.is_pointwise() ? 0 : k * kTile, x.dtype());
    for (int64_t task = first_task; task < last_task; ++task) {
      const Place place{task / tiles / g.groups, task / tiles % g.groups, g.groups};
      const int64_t begin = task % tiles * kTile, n = std::min(kTile, positions - begin);
      const char* in = place.of(x, channels, volume(g.size));
      codegen::GemmOperand b{in + begin * itemsize(x.dtype()), x.dtype(), positions, 1};
      if (!g.is_pointwise()) {
        write_columns(g, in, itemsize(x.dtype()), channels, begin, begin + n, bytes_of(columns), n);
        b = {bytes_of(columns), x.dtype(), n, 1};
      }
      char* out = const_cast<char*>(place.of(y, features, positions)) + begin * itemsize(y.dtype());
      codegen::gemm(features, n, k, {place.of_weight(w), w.dtype(), k, 1}, b, {out, y.dtype(), positions}, tree);
    }
  });
}

namespace {

// Adds the taps of one channel to its plane: in row-major order of taps for every element.
template <class Sum>
void add_taps(const ConvGeometry& g, const Sum* taps, Sum* plane) {
  for (int64_t k0 = 0; k0 < g.kernel[0]; ++k0) {
    for (int64_t k1 = 0; k1 < g.kernel[1]; ++k1) {
      for (int64_t k2 = 0; k2 < g.kernel[2]; ++k2) {
        for (int64_t p0 = 0; p0 < g.output[0]; ++p0) {
          const int64_t i0 = p0 * g.stride[0] - g.before[0] + k0 * g.dilation[0];
          for (int64_t p1 = 0; p1 < g.output[1]; ++p1, taps += g.output[2]) {
            const int64_t i1 = p1 * g.stride[1] - g.before[1] + k1 * g.dilation[1];
            if (i0 < 0 || i0 >= g.size[0] || i1 < 0 || i1 >= g.size[1]) continue;
            const int64_t shift = k2 * g.dilation[2] - g.before[2];
            Sum* line = plane + (i0 * g.size[1] + i1) * g.size[2] + shift;
            const int64_t step = g.stride[2], from = shift >= 0 ? 0 : (-shift + step - 1) / step;
            const int64_t to = std::min(g.output[2], g.size[2] - shift <= 0 ? 0 : (g.size[2] - shift - 1) / step + 1);
            if (step == 1)
              for (int64_t j = from; j < to; ++j) line[j] += taps[j];
            else
              for (int64_t j = from; j < to; ++j) line[j * step] += taps[j];
          }
        }
      }
    }
  }
}

template <class Sum>
void input_gradient(const ConvGeometry& g, const Tensor& grad, const Tensor& w, const Tensor& dx) {
  const int64_t channels = w.extents()[1], features = w.extents()[0] / g.groups, positions = volume(g.output),
                taps = volume(g.kernel);
  const int64_t plane = volume(g.size), images = grad.extents()[0];
  if (dx.numel() == 0) return;
  const codegen::ContractionTree tree = codegen::ContractionTree::halving(features);
  // Channels are computed side by side as far as their taps stay near.
  const int64_t together =
                    std::clamp<int64_t>((int64_t{1} << 18) / std::max<int64_t>(taps * positions, 1), 1, channels),
                parts = (channels + together - 1) / together;
  const DType sum_type = dtype_of<Sum>;
  ThreadPool::current().parallel_for(images * g.groups * parts, 1, [&](int64_t begin, int64_t end) {
    const Tensor products = buffer(together * taps * positions, sum_type), sums = buffer(plane, sum_type);
    Sum *product = products.template data<Sum>(), *sum = sums.template data<Sum>();
    for (int64_t task = begin; task < end; ++task) {
      const Place place{task / parts / g.groups, task / parts % g.groups, g.groups};
      const int64_t first = task % parts * together, count = std::min(together, channels - first);
      const int64_t k = channels * taps;  // columns of the weight; its transpose has them as rows
      codegen::gemm(
          count * taps, positions, features, {place.of_weight(w) + first * taps * itemsize(w.dtype()), w.dtype(), 1, k},
          {place.of(grad, features, positions), grad.dtype(), positions, 1}, {product, sum_type, positions}, tree);
      for (int64_t c = 0; c < count; ++c) {
        std::fill(sum, sum + plane, static_cast<Sum>(kSumIdentity));
        add_taps(g, product + c * taps * positions, sum);
        char* out = const_cast<char*>(place.of(dx, channels, plane)) + (first + c) * plane * itemsize(dx.dtype());
        if (dx.dtype() == sum_type) std::copy(sum, sum + plane, reinterpret_cast<Sum*>(out));
        else
          for (int64_t i = 0; i < plane; ++i)
            store_from_double(out + i * itemsize(dx.dtype()), dx.dtype(), static_cast<double>(sum[i]));
      }
    }
  });
}

}  // namespace

void conv_input_gradient(const ConvGeometry& g, const Tensor& grad, const Tensor& w, const Tensor& dx) {
  if (grad.dtype() == DType::f64 || w.dtype() == DType::f64)
    input_gradient<double>(g, to_contiguous(grad), to_contiguous(w), dx);
  else input_gradient<float>(g, to_contiguous(grad), to_contiguous(w), dx);
}

// Images and positions are one axis of tokens: the columns of all images stand side by side, [C' * taps, N * P], and so
// do the cotangents, [O / groups, N * P].
void conv_weight_gradient(const ConvGeometry& g, const Tensor& any_grad, const Tensor& any_x, const Tensor& dw) {
  const Tensor grad = to_contiguous(any_grad), x = to_contiguous(any_x);
  const int64_t channels = dw.extents()[1], features = dw.extents()[0] / g.groups, positions = volume(g.output),
                taps = volume(g.kernel);
  const int64_t images = x.extents()[0], tokens = images * positions;
  if (dw.numel() == 0) return;
  const codegen::ContractionTree tree = codegen::ContractionTree::halving(tokens, static_cast<int32_t>(token_grain()));
  const int64_t together =
      std::clamp<int64_t>(kColumnBytes / std::max<int64_t>(taps * tokens * itemsize(x.dtype()), 1), 1, channels);
  const Tensor columns = buffer(together * taps * tokens, x.dtype()),
               cotangents = buffer(features * tokens, grad.dtype());
  ThreadPool& pool = ThreadPool::current();
  for (int64_t group = 0; group < g.groups; ++group) {
    pool.parallel_for(images * features, 16, [&](int64_t begin, int64_t end) {
      const int64_t line = positions * itemsize(grad.dtype());
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(bytes_of(cotangents) + ((i % features) * images + i / features) * line,
                    Place{i / features, group, g.groups}.of(grad, features, positions) + i % features * line,
                    static_cast<size_t>(line));
    });
    for (int64_t first = 0; first < channels; first += together) {
      const int64_t count = std::min(together, channels - first);
      pool.parallel_for(images * count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t image = i / count, c = i % count;
          write_columns(g,
                        Place{image, group, g.groups}.of(x, channels, volume(g.size)) +
                            (first + c) * volume(g.size) * itemsize(x.dtype()),
                        itemsize(x.dtype()), 1, 0, positions,
                        bytes_of(columns) + (c * taps * tokens + image * positions) * itemsize(x.dtype()), tokens);
        }
      });
      char* out =
          static_cast<char*>(dw.raw_data()) + ((group * features * channels) + first) * taps * itemsize(dw.dtype());
      codegen::gemm(features, count * taps, tokens, {bytes_of(cotangents), grad.dtype(), tokens, 1},
                    {bytes_of(columns), x.dtype(), 1, tokens}, {out, dw.dtype(), channels * taps}, tree);
    }
  }
}

}  // namespace tutti::facets

#include "tutti/ops/scatter_add.h"

#include <algorithm>
#include <vector>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/indexing/prefetch.h"
#include "tutti/ops/indexing/scatter_targets.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

void infer_scatter_add(const OpCall& call, OutputMetas& out) {
  TUTTI_CHECK(call[0].dtype() == call[2].dtype() || (is_floating(call[0].dtype()) && is_floating(call[2].dtype())),
              "scatter_add: the source {} cannot be added to {}; cast it", describe(call[2]), describe(call[0]));
  facets::infer_scatter(call, out);
}

// target = source, converted; dense tensors of floating dtypes, at least one of which is f32 or f64.
void convert_elements(const Tensor& target, const Tensor& source) {
  visit_dtype(target.dtype(), [&]<class To>() {
    visit_dtype(source.dtype(), [&]<class From>() {
      if constexpr (std::is_floating_point_v<To> ? !std::is_integral_v<From>
                                                 : std::is_floating_point_v<From> && !std::is_integral_v<To>) {
        To* to = static_cast<To*>(target.raw_data());
        const From* from = static_cast<const From*>(source.raw_data());
        for (int64_t i = 0; i < target.numel(); ++i) {
          if constexpr (std::is_floating_point_v<To> && std::is_floating_point_v<From>)
            to[i] = static_cast<To>(from[i]);
          else if constexpr (std::is_floating_point_v<To>) to[i] = static_cast<To>(to_float(from[i]));
          else store_from_double(to + i, target.dtype(), static_cast<double>(from[i]));
        }
      }
    });
  });
}

// Elements from the start of a tensor to each index of some of its dims, row-major.
class Places {
 public:
  Places(const Extents& sizes, const Tensor& t, size_t begin, size_t end) : offsets_{0} {
    for (size_t d = begin; d < end; ++d) {
      std::vector<int64_t> next;
      next.reserve(offsets_.size() * static_cast<size_t>(sizes[d]));
      for (const int64_t base : offsets_) {
        for (int64_t i = 0; i < sizes[d]; ++i) next.push_back(base + i * t.strides()[d]);
      }
      offsets_ = std::move(next);
    }
    step_ = size() > 1 ? offsets_[1] : 0;
    for (int64_t i = 0; i < size(); ++i) is_even_ = is_even_ && offsets_[static_cast<size_t>(i)] == i * step_;
  }
  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  bool is_even() const { return is_even_; }
  int64_t operator[](int64_t i) const { return offsets_[static_cast<size_t>(i)]; }
  int64_t between(int64_t first, int64_t i) const { return (*this)[first + i] - (*this)[first]; }
  int64_t even(int64_t i) const { return i * step_; }

 private:
  std::vector<int64_t> offsets_;
  int64_t step_;
  bool is_even_ = true;
};

// An element per index and source, whose targets are asked for so many elements before they are added to: they lie
// anywhere.
constexpr int64_t kAhead = 16;
template <class Put, class Target, class From>
void for_each_element(int64_t count, const Put& put, Target target, From from) {
  int64_t i = 0;
  for (; i < count - kAhead; ++i) {
    put.ask_for(target(i + kAhead));
    put(target(i), from(i));
  }
  for (; i < count; ++i) put(target(i), from(i));
}

// Calls put(target element, source element) for every element of source: for each target in ascending order of the
// index's position along `dim`. Threads share out the dims beside it, so no two of them meet in a target.
template <class Index, class Put>
void for_each_target(const Tensor& out, size_t dim, const Tensor& index, const Tensor& source, const Put& put) {
  const Extents& sizes = index.extents();
  if (index.numel() == 0) return;
  const size_t n = sizes.size();
  const Places out_outer(sizes, out, 0, dim), out_inner(sizes, out, dim + 1, n);
  const Places index_outer(sizes, index, 0, dim), index_inner(sizes, index, dim + 1, n);
  const Places source_outer(sizes, source, 0, dim), source_inner(sizes, source, dim + 1, n);
  const int64_t step = out.strides()[dim], index_step = index.strides()[dim], source_step = source.strides()[dim];
  const Index* picks = static_cast<const Index*>(index.raw_data());
  const int64_t inner = out_inner.size(), lines = out_outer.size() * inner, length = sizes[dim];
  // Fewer loads an element let more of them wait for memory at once.
  const bool is_even = out_inner.is_even() && index_inner.is_even() && source_inner.is_even();
  ThreadPool::current().parallel_for(
      lines, std::max<int64_t>(kParallelGrain / length, 1), [&](int64_t begin, int64_t end) {
        while (begin < end) {  // the lines [begin, stop) of one outer index
          const int64_t o = begin / inner, stop = std::min(end, (o + 1) * inner), first = begin % inner,
                        count = stop - begin;
          const Index* pick = picks + index_outer[o] + index_inner[first];
          const int64_t target = out_outer[o] + out_inner[first], from = source_outer[o] + source_inner[first];
          if (count == 1) {
            for_each_element(
                length, put, [=](int64_t j) { return target + pick[j * index_step] * step; },
                [=](int64_t j) { return from + j * source_step; });
          }
          for (int64_t j = 0; count > 1 && j < length; ++j) {
            const Index* row = pick + j * index_step;
            const int64_t from_row = from + j * source_step;
            if (is_even) {
              for_each_element(
                  count, put, [&](int64_t i) { return target + row[index_inner.even(i)] * step + out_inner.even(i); },
                  [&](int64_t i) { return from_row + source_inner.even(i); });
            } else {
              for_each_element(
                  count, put,
                  [&](int64_t i) {
                    return target + row[index_inner.between(first, i)] * step + out_inner.between(first, i);
                  },
                  [&](int64_t i) { return from_row + source_inner.between(first, i); });
            }
          }
          begin = stop;
        }
      });
}

template <class Put>
void for_each_target(const OpCall& call, const Tensor& out, const Put& put) {
  const size_t dim = facets::scatter_dim(call.attrs);
  if (call[1].dtype() == DType::i64) for_each_target<int64_t>(out, dim, call[1], call[2], put);
  else for_each_target<int32_t>(out, dim, call[1], call[2], put);
}

template <class Sum, class Source>
struct Addition {
  Sum* to;
  const Source* from;
  void ask_for(int64_t target) const { facets::prefetch_line(to + target); }
  void operator()(int64_t target, int64_t source) const {
    if constexpr (std::is_arithmetic_v<Source>)
      to[target] = static_cast<Sum>(to[target] + static_cast<Sum>(from[source]));
    else to[target] += static_cast<Sum>(to_float(from[source]));
  }
};

template <class Sum>
void add_targets(const OpCall& call, const Tensor& sums) {
  Sum* to = static_cast<Sum*>(sums.raw_data());
  visit_dtype(call[2].dtype(), [&]<class Source>() {
    // The pairs that infer_scatter_add() lets pass.
    if constexpr (std::is_integral_v<Sum> ? std::is_same_v<Sum, Source> : !std::is_integral_v<Source>) {
      const Source* from = static_cast<const Source*>(call[2].raw_data());
      for_each_target(call, sums, Addition<Sum, Source>{to, from});
    }
  });
}

// A kernel and not a recipe: elements of one vector may add to one place, each to what the one before it left.
void scatter_add_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const DType dtype = outputs[0].dtype();
  const bool wide = compute_dtype(dtype) == dtype;
  const Tensor sums = wide ? outputs[0] : Tensor::empty(outputs[0].extents(), compute_dtype(dtype));
  if (wide) facets::raw_copy(sums, call[0]);
  else convert_elements(sums, to_contiguous(call[0]));
  visit_dtype(sums.dtype(), [&]<class Sum>() {
    if constexpr (std::is_arithmetic_v<Sum>) add_targets<Sum>(call, sums);
  });
  if (!wide) convert_elements(outputs[0], sums);
}

void scatter_add_reference(const OpCall& call, std::span<const Tensor> outputs) {
  facets::check_scatter_indices(call);
  const bool integer = !is_floating(call[0].dtype());
  const Tensor sums = Tensor::empty(call[0].extents(), integer ? DType::i64 : DType::f64);
  const Tensor pair[] = {call[0], sums};
  facets::for_each_element(call[0].extents(), pair, [&](int64_t, const int64_t* at) {
    if (integer) facets::write_int64(sums, at[1], facets::read_int64(call[0], at[0]));
    else facets::write_double(sums, at[1], facets::read_double(call[0], at[0]));
  });
  facets::for_each_index(call[1].extents(), [&](const Extents& at) {
    Extents target = at;
    target[facets::scatter_dim(call.attrs)] = facets::read_int64(call[1], facets::offset_at(call[1], at));
    const int64_t t = facets::offset_at(sums, target), s = facets::offset_at(call[2], at);
    if (integer) facets::write_int64(sums, t, facets::read_int64(sums, t) + facets::read_int64(call[2], s));
    else facets::write_double(sums, t, facets::read_double(sums, t) + facets::read_double(call[2], s));
  });
  for (int64_t i = 0; i < sums.numel(); ++i) {
    if (integer) facets::write_int64(outputs[0], i, facets::read_int64(sums, i));
    else facets::write_double(outputs[0], i, facets::read_double(sums, i));
  }
}

void scatter_add_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (c.needs(0)) grads[0] = c.grads[0];
  if (c.needs(2)) grads[2] = gather(c.grads[0], c.attrs.as<facets::ScatterAttrs>().dim, c.inputs[1]);
}

const OpDef kScatterAdd{
    .name = "scatter_add",
    .num_inputs = 3,
    .infer = infer_scatter_add,
    .reference = scatter_add_reference,
    .gradient = {.vjp = scatter_add_vjp, .saves_inputs = 0b10},
    .check = facets::check_scatter_indices,
    .kernel = scatter_add_kernel,
    .sharding = [](const OpCall& call) { return facets::scatter_sharding(call, "lin"); },
    .samples =
        [] {
          const auto index = [](uint64_t seed, const Extents& sizes, double n, DType dtype = DType::i64) {
            return facets::sample_tensor(seed, sizes, dtype, 0, n);
          };
          return std::vector<Sample>{
              {"rows",
               {facets::sample_tensor(1, {4, 5}), index(2, {9, 5}, 4), facets::sample_tensor(3, {9, 5})},
               Attrs::of(facets::ScatterAttrs{0})},
              {"columns_i32",
               {facets::sample_tensor(4, {3, 4}), index(5, {2, 8}, 4, DType::i32), facets::sample_tensor(6, {2, 8})},
               Attrs::of(facets::ScatterAttrs{1})},
              {"bf16",
               {facets::sample_tensor(7, {3, 4}, DType::bf16), index(8, {7, 4}, 3),
                facets::sample_tensor(9, {7, 4}, DType::bf16)},
               Attrs::of(facets::ScatterAttrs{0})},
              {"integers",
               {facets::sample_tensor(10, {5}, DType::i32), index(11, {12}, 5),
                facets::sample_tensor(12, {12}, DType::i32)},
               Attrs::of(facets::ScatterAttrs{0})},
              {"f64",
               {facets::sample_tensor(13, {3, 2}, DType::f64), index(14, {6, 2}, 3),
                facets::sample_tensor(15, {6, 2}, DType::f64)},
               Attrs::of(facets::ScatterAttrs{0})}};
        },
};

}  // namespace

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return call_op(kScatterAdd, Attrs::of(facets::ScatterAttrs{normalize_dim(dim, x.ndim(), "scatter_add")}), x, index,
                 source);
}

}  // namespace tutti

TUTTI_OPS(scatter_add, &kScatterAdd)

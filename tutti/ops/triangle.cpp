#include "tutti/ops/triangle.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

// `diagonal` is that of the part: it absorbs the part's offsets.
struct TriangleAttrs {
  int64_t diagonal;
  static constexpr auto fields() { return field_list(field::number<&TriangleAttrs::diagonal>("diagonal")); }
};

// Beyond these every element is kept or none, so that sums with offsets and sizes do not overflow.
constexpr int64_t kFarthest = std::numeric_limits<int64_t>::max() / 4;

template <bool kUpper>
bool is_kept(int64_t row, int64_t column, int64_t diagonal) {
  return kUpper ? column - row >= diagonal : column - row <= diagonal;
}

// The columns of a row that are kept.
template <bool kUpper>
std::pair<int64_t, int64_t> kept_columns(int64_t row, int64_t columns, int64_t diagonal) {
  if constexpr (kUpper) return {std::clamp<int64_t>(row + diagonal, 0, columns), columns};
  else return {0, std::clamp<int64_t>(row + diagonal + 1, 0, columns)};
}

template <class Word>
void copy_words(char* target, const char* source, int64_t n, int64_t stride) {
  if (stride == 1) {
    if (n > 0) std::memcpy(target, source, static_cast<size_t>(n) * sizeof(Word));
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(target + i * static_cast<int64_t>(sizeof(Word)),
                source + i * stride * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
}

void copy_elements(char* target, const char* source, int64_t n, int64_t stride, int64_t bytes) {
  switch (bytes) {
    case 1:
      return copy_words<uint8_t>(target, source, n, stride);
    case 2:
      return copy_words<uint16_t>(target, source, n, stride);
    case 4:
      return copy_words<uint32_t>(target, source, n, stride);
    default:
      return copy_words<uint64_t>(target, source, n, stride);
  }
}

// Elements from the first one of x to the first one of row `row` of all its matrices.
int64_t offset_of_row(const Tensor& x, int64_t row) {
  int64_t offset = 0;
  for (int d = x.ndim() - 2; d >= 0; --d) {
    const int64_t size = x.extents()[static_cast<size_t>(d)];
    offset += row % size * x.strides()[static_cast<size_t>(d)];
    row /= size;
  }
  return offset;
}

template <bool kUpper>
void run_rows(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &x = call[0], &y = outputs[0];
  if (x.numel() == 0) return;
  const size_t last = static_cast<size_t>(x.ndim()) - 1;
  const int64_t columns = x.extents()[last], rows = x.extents()[last - 1], bytes = itemsize(x.dtype()),
                stride = x.strides()[last], diagonal = call.attrs.as<TriangleAttrs>().diagonal;
  const int64_t rows_at_once = std::max<int64_t>(kParallelGrain / columns, 1);
  ThreadPool::current().parallel_for(x.numel() / columns, rows_at_once, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto [first, past] = kept_columns<kUpper>(r % rows, columns, diagonal);
      char* const target = static_cast<char*>(y.raw_data()) + r * columns * bytes;
      const char* const source = static_cast<const char*>(x.raw_data()) + offset_of_row(x, r) * bytes;
      std::memset(target, 0, static_cast<size_t>(first * bytes));
      copy_elements(target + first * bytes, source + first * stride * bytes, past - first, stride, bytes);
      std::memset(target + past * bytes, 0, static_cast<size_t>((columns - past) * bytes));
    }
  });
}

std::vector<Sample> triangle_samples() {
  const auto at = [](int64_t diagonal) { return Attrs::of(TriangleAttrs{diagonal}); };
  return {{"square", {facets::sample_tensor(1, {5, 5})}, at(0)},
          {"wide_above", {facets::sample_tensor(2, {3, 17})}, at(2)},
          {"batch_below_bf16", {facets::sample_tensor(3, {2, 7, 4}, DType::bf16)}, at(-1)},
          {"strided_i64", {facets::strided_copy(facets::sample_tensor(4, {4, 6}, DType::i64))}, at(1)},
          {"outside", {facets::sample_tensor(5, {3, 3})}, at(-5)},
          {"empty", {facets::sample_tensor(6, {2, 0, 3})}, at(0)}};
}

template <bool kUpper>
const OpDef kTriangle{
    .name = kUpper ? "triu" : "tril",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const size_t last = static_cast<size_t>(call[0].ndim()) - 1;
          const int64_t diagonal = call.attrs.as<TriangleAttrs>().diagonal;
          facets::fill_elements(outputs[0], 0.0);
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            if (is_kept<kUpper>(at[last - 1], at[last], diagonal)) facets::move_element(outputs[0], at, call[0], at);
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const int64_t diagonal = c.attrs.as<TriangleAttrs>().diagonal;
                       grads[0] = kUpper ? triu(c.grads[0], diagonal) : tril(c.grads[0], diagonal);
                     }},
    // A kernel and not a recipe: rows are copied in two parts, where a recipe would divide each element's index.
    .kernel = run_rows<kUpper>,
    .sharding =
        [](const OpCall& call) {
          const std::string letters = facets::dim_letters(call[0].ndim());
          return fmt::format("x[{0}] -> y[{0}] | | id", letters);
        },
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          const size_t last = part.offsets.size() - 1;
          return Attrs::of(
              TriangleAttrs{call.attrs.as<TriangleAttrs>().diagonal + part.offsets[last - 1] - part.offsets[last]});
        },
    .samples = triangle_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

template <bool kUpper>
Tensor triangle(const Tensor& x, int64_t diagonal) {
  TUTTI_CHECK(x.ndim() >= 2, "{}: x is {}; a triangle is one of the last two dims, so give at least two",
              kTriangle<kUpper>.name, describe(x));
  return call_op(kTriangle<kUpper>, Attrs::of(TriangleAttrs{std::clamp(diagonal, -kFarthest, kFarthest)}), x);
}

constexpr const OpDef& kTril = kTriangle<false>;
constexpr const OpDef& kTriu = kTriangle<true>;

}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) { return triangle<false>(x, diagonal); }

Tensor triu(const Tensor& x, int64_t diagonal) { return triangle<true>(x, diagonal); }

}  // namespace tutti

TUTTI_OPS(triangle, &kTril, &kTriu)

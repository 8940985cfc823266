#include "tutti/ops/row_quantization.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/tables/code_rows.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace facets {

CodeRowLayout::CodeRowLayout(RowQuantization format, int64_t columns) {
  using enum RowQuantization;
  const bool front = format == fused_8bit_rowwise_sbhalf_front || format == fused_4bit_rowwise_sbhalf_front;
  bits = format == fused_8bit_rowwise || format == fused_8bit_rowwise_sbhalf_front ? 8 : 4;
  halves = format != fused_8bit_rowwise;
  const int64_t of_codes = bits == 8 ? columns : columns / 2 + columns % 2;
  codes = front ? 4 : 0;
  scale = front ? 0 : of_codes;
  nbytes = front ? (4 + of_codes + 15) / 16 * 16 : of_codes + (halves ? 4 : 8);
}

bool encode_row(const CodeRowLayout& layout, const float* numbers, int64_t columns, uint8_t* row) {
  std::fill_n(row, layout.nbytes, uint8_t{0});
  float least = columns > 0 ? numbers[0] : 0, most = least;
  bool finite = true;
  for (int64_t d = 0; d < columns; ++d) {
    least = std::min(least, numbers[d]);
    most = std::max(most, numbers[d]);
    finite = finite && std::isfinite(numbers[d]);
  }
  float scale, per_step;
  if (layout.bits == 8) {
    scale = (most - least) / 255.0f;
    per_step = 255.0f / (most - least + 1e-8f);
  } else {
    least = to_float(to_float16(least));
    const float range = most - least;
    scale = to_float(to_float16(range == 0 ? 1.0f : range / 15.0f));
    per_step = 1.0f / scale;
    if (scale == 0 || std::isinf(per_step)) scale = per_step = 1.0f;
  }
  const float largest = layout.halves ? 65519.0f : std::numeric_limits<float>::max();  // what f16 rounds down
  if (!finite || !std::isfinite(most - least) || !(std::fabs(scale) <= largest) || !(std::fabs(least) <= largest))
    return false;
  for (int64_t d = 0; d < columns; ++d) {
    const float steps = std::nearbyint((numbers[d] - least) * per_step);
    const uint8_t code = static_cast<uint8_t>(std::clamp(steps, 0.0f, layout.bits == 8 ? 255.0f : 15.0f));
    uint8_t& place = row[layout.codes + (layout.bits == 8 ? d : d / 2)];
    place = static_cast<uint8_t>(layout.bits == 8 || d % 2 == 0 ? code : place | code << 4);
  }
  uint8_t* const at = row + layout.scale;
  if (layout.halves) {
    const float16 two[] = {to_float16(scale), to_float16(least)};
    std::memcpy(at, two, sizeof(two));
  } else {
    const float two[] = {scale, least};
    std::memcpy(at, two, sizeof(two));
  }
  return true;
}

}  // namespace facets

namespace {

using facets::CodeRowLayout;

struct RowCodeAttrs {
  int64_t columns;
  RowQuantization format;

  static constexpr auto fields() {
    return field_list(field::number<&RowCodeAttrs::columns>("columns"), field::rule<&RowCodeAttrs::format>("format"));
  }
};
const RowCodeAttrs& row_attrs(const OpCall& call) { return call.attrs.as<RowCodeAttrs>(); }
CodeRowLayout layout_of(const OpCall& call) { return {row_attrs(call).format, row_attrs(call).columns}; }

[[noreturn]] void refuse_row(const OpCall& call, int64_t row, const float* numbers) {
  const int64_t columns = row_attrs(call).columns;
  for (int64_t d = 0; d < columns; ++d)
    TUTTI_CHECK(std::isfinite(numbers[d]), "{}: row {}, column {} is {}; expected finite numbers", call.op.name, row, d,
                numbers[d]);
  const auto [least, most] = std::minmax_element(numbers, numbers + columns);
  throw UsageError(
      fmt::format("{}: row {} has numbers from {} to {}, whose difference, scale or minimum is too large "
                  "for {}; the limit is {}",
                  call.op.name, row, *least, *most, layout_of(call).halves ? "f16" : "f32",
                  layout_of(call).halves ? "65504" : "3.4e38"));
}

// ---- quantize -------------------------------------------------------------------------------------------------------

void infer_quantize(const OpCall& call, OutputMetas& out) {
  TUTTI_CHECK(call[0].ndim() == 2 && compute_dtype(call[0].dtype()) == DType::f32 && !is_fp8(call[0].dtype()),
              "{}: the weight is {}; expected a matrix of f32, bf16 or f16", call.op.name, describe(call[0]));
  out.add(DType::u8, {call[0].size(0), layout_of(call).nbytes});
}

void reference_quantize(const OpCall& call, std::span<const Tensor> outputs) {
  const CodeRowLayout layout = layout_of(call);
  const int64_t columns = row_attrs(call).columns;
  std::vector<float> numbers(static_cast<size_t>(columns));
  std::vector<uint8_t> row(static_cast<size_t>(layout.nbytes));
  for (int64_t r = 0; r < outputs[0].extents()[0]; ++r) {
    for (int64_t d = 0; d < columns; ++d)
      numbers[static_cast<size_t>(d)] =
          static_cast<float>(facets::read_double(call[0], facets::offset_at(call[0], {r, d})));
    if (!encode_row(layout, numbers.data(), columns, row.data())) refuse_row(call, r, numbers.data());
    for (int64_t i = 0; i < layout.nbytes; ++i)
      facets::write_int64(outputs[0], r * layout.nbytes + i, row[static_cast<size_t>(i)]);
  }
}

// A kernel and not a recipe: parts of a row are numbers of other dtypes.
void run_quantize(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor numbers = facets::dense_as(call[0], DType::f32);
  const CodeRowLayout layout = layout_of(call);
  const int64_t columns = row_attrs(call).columns, rows = outputs[0].extents()[0];
  std::atomic<int64_t> refused{rows};
  ThreadPool::current().parallel_for(
      rows, std::max<int64_t>(kParallelGrain / (columns + 1), 1), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          if (encode_row(layout, numbers.data<float>() + r * columns, columns,
                         outputs[0].data<uint8_t>() + r * layout.nbytes))
            continue;
          for (int64_t before = refused; r < before && !refused.compare_exchange_weak(before, r);) {
          }
          break;
        }
      });
  if (refused < rows) refuse_row(call, refused, numbers.data<float>() + refused * columns);
}

// ---- dequantize -----------------------------------------------------------------------------------------------------

void infer_dequantize(const OpCall& call, OutputMetas& out) {
  const int64_t nbytes = layout_of(call).nbytes;
  TUTTI_CHECK(call[0].ndim() == 2 && call[0].dtype() == DType::u8 && call[0].size(1) == nbytes,
              "{}: the rows are {}; expected u8 [rows, {}] for {} columns", call.op.name, describe(call[0]), nbytes,
              row_attrs(call).columns);
  out.add(DType::f32, {call[0].size(0), row_attrs(call).columns});
}

void reference_dequantize(const OpCall& call, std::span<const Tensor> outputs) {
  const CodeRowLayout layout = layout_of(call);
  const Tensor rows = to_contiguous(call[0]);
  const int64_t columns = row_attrs(call).columns;
  for (int64_t r = 0; r < outputs[0].extents()[0]; ++r) {
    const uint8_t* row = rows.data<uint8_t>() + r * layout.nbytes;
    for (int64_t d = 0; d < columns; ++d)
      facets::write_double(outputs[0], r * columns + d,
                           static_cast<double>(layout.scale_of(row)) * layout.code_of(row, d) +
                               static_cast<double>(layout.minimum_of(row)));
  }
}

void run_dequantize(const OpCall& call, std::span<const Tensor> outputs) {
  const CodeRowLayout layout = layout_of(call);
  const Tensor rows = to_contiguous(call[0]);
  const int64_t columns = row_attrs(call).columns;
  ThreadPool::current().parallel_for(
      outputs[0].extents()[0], std::max<int64_t>(kParallelGrain / (columns + 1), 1), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const uint8_t* row = rows.data<uint8_t>() + r * layout.nbytes;
          float* out = outputs[0].data<float>() + r * columns;
          const float scale = layout.scale_of(row), minimum = layout.minimum_of(row);
          int64_t d = 0;
          for (; d + 16 <= columns; d += 16) {
            __m256 codes[2];
            if (layout.bits == 8) facets::load_codes<8>(row + layout.codes + d, codes);
            else facets::load_codes<4>(row + layout.codes + d / 2, codes);
            for (int64_t i = 0; i < 2; ++i)
              _mm256_storeu_ps(out + d + 8 * i,
                               _mm256_fmadd_ps(codes[i], _mm256_set1_ps(scale), _mm256_set1_ps(minimum)));
          }
          for (; d < columns; ++d) out[d] = std::fma(static_cast<float>(layout.code_of(row, d)), scale, minimum);
        }
      });
}

// ---- the ops --------------------------------------------------------------------------------------------------------

std::string sharding(const OpCall&) { return "#x[vA] -> y[vA]"; }

constexpr RowQuantization kFormats[] = {RowQuantization::fused_8bit_rowwise, RowQuantization::fused_4bit_rowwise_sbhalf,
                                        RowQuantization::fused_8bit_rowwise_sbhalf_front,
                                        RowQuantization::fused_4bit_rowwise_sbhalf_front};
constexpr const char* kFormatNames[] = {"8bit", "4bit", "8bit_front", "4bit_front"};

std::vector<Sample> samples(bool quantized) {
  std::vector<Sample> list;
  for (size_t k = 0; k < std::size(kFormats); ++k) {
    const auto add = [&](const char* name, int64_t rows, int64_t columns, DType dtype) {
      Tensor table = facets::sample_tensor(k + 1, {rows, columns}, dtype);
      if (quantized) table = quantize_rows(table, kFormats[k]);
      list.push_back(
          {fmt::format("{} {}", kFormatNames[k], name), {table}, Attrs::of(RowCodeAttrs{columns, kFormats[k]})});
    };
    add("odd", 7, 21, DType::f32);
    add("lanes", 5, 32, DType::bf16);
    add("no_rows", 0, 4, DType::f16);
  }
  return list;
}

const OpDef kQuantize{.name = "quantize_rows",
                      .num_inputs = 1,
                      .infer = infer_quantize,
                      .reference = reference_quantize,
                      .gradient = {.none = "codes are whole numbers"},
                      .kernel = run_quantize,
                      .sharding = sharding,
                      .samples = [] { return samples(false); }};
const OpDef kDequantize{.name = "dequantize_rows",
                        .num_inputs = 1,
                        .infer = infer_dequantize,
                        .reference = reference_dequantize,
                        .gradient = {.none = "codes are whole numbers"},
                        .kernel = run_dequantize,
                        .sharding = sharding,
                        .samples = [] { return samples(true); },
                        .tolerance = {.f32 = 0}};

}  // namespace

int64_t quantized_row_nbytes(RowQuantization format, int64_t columns) {
  TUTTI_CHECK(columns >= 0, "quantized_row_nbytes: {} columns; expected 0 or more", columns);
  return CodeRowLayout(format, columns).nbytes;
}

Tensor quantize_rows(const Tensor& weight, RowQuantization format) {
  TUTTI_CHECK(weight.defined() && weight.ndim() == 2, "quantize_rows: the weight is {}; expected a matrix",
              describe(weight));
  return call_op(kQuantize, Attrs::of(RowCodeAttrs{weight.size(1).guard_int(), format}), weight);
}

Tensor dequantize_rows(const Tensor& rows, RowQuantization format, int64_t columns) {
  TUTTI_CHECK(columns >= 0, "dequantize_rows: {} columns; expected 0 or more", columns);
  return call_op(kDequantize, Attrs::of(RowCodeAttrs{columns, format}), rows);
}

}  // namespace tutti

TUTTI_OPS(row_quantization, &kQuantize, &kDequantize)

#include "tutti/ops/quantized_embedding.h"

#include "tutti/core/block_codec.h"
#include "tutti/core/block_format.h"
#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

// Elements below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 14;

// The element of a block by the definition of its product: products are exact, so each rounds at most once.
double plain_element(const quantized::PlainBlock& block, size_t e) {
  float value = block.d * static_cast<float>(block.scale[e]) * static_cast<float>(block.code[e]);
  const float minimum = block.m * static_cast<float>(block.minimum[e]);
  if (block.adds_minimum) value += minimum;
  if (block.subtracts_minimum) value -= minimum;
  return value;
}

void write_plain_row(BlockFormat format, std::span<const std::byte> row, const Tensor& out, int64_t offset) {
  const BlockFormatRow& shape = row_of(format);
  for (size_t b = 0; b < row.size() / static_cast<size_t>(shape.nbytes); ++b) {
    const quantized::PlainBlock block =
        quantized::plain_block(format, row.data() + b * static_cast<size_t>(shape.nbytes));
    for (size_t e = 0; e < block.code.size(); ++e) facets::write_double(out, offset++, plain_element(block, e));
  }
}

std::vector<Sample> samples_of_formats(const std::function<Sample(BlockFormat format, int64_t elements)>& sample) {
  std::vector<Sample> all;
  for (const BlockFormat format : quantized::block_formats())
    all.push_back(sample(format, row_of(format).elements == 32 ? 96 : 256));
  return all;
}

// ---- quantized_embedding

struct LookupAttrs {
  BlockFormat format;
  DType dtype;
  static constexpr auto fields() {
    return field_list(field::rule<&LookupAttrs::format>("format"), field::output_dtype<&LookupAttrs::dtype>("dtype"));
  }
};

void infer_lookup(const OpCall& call, OutputMetas& out) {
  facets::check_index_dtype("quantized_embedding", call[1]);
  const LookupAttrs& a = call.attrs.as<LookupAttrs>();
  Shape sizes = call[1].sizes();
  sizes.push_back(quantized::elements_of_row(call[0].sizes()[1], a.format));
  out.add(a.dtype, sizes);
}

void check_rows(const OpCall& call) {
  facets::check_index_range("quantized_embedding", call[1], call[0].extents()[0],
                            fmt::format("rows of the table {}", describe(call[0])));
}

// A kernel and not a recipe: blocks have no elements that a loop could read one by one.
void lookup_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& out = outputs[0];
  const int64_t features = out.extents().back();
  if (out.numel() == 0) return;
  const BlockFormat format = call.attrs.as<LookupAttrs>().format;
  const quantized::BlockRows table(call[0]);
  const std::vector<int64_t> rows = facets::dense_indices(call[1]);
  ThreadPool::current().parallel_for(std::ssize(rows), kWorthATask / features + 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(out.dtype() == DType::f32 ? 0 : features));
    for (int64_t i = begin; i < end; ++i) {
      const std::span<const std::byte> row = table.row(rows[static_cast<size_t>(i)]);
      if (out.dtype() == DType::f32) {
        decode_blocks(format, row, {out.data<float>() + i * features, static_cast<size_t>(features)});
        continue;
      }
      decode_blocks(format, row, values);
      for (int64_t f = 0; f < features; ++f)
        facets::write_double(out, i * features + f, static_cast<double>(values[static_cast<size_t>(f)]));
    }
  });
}

void lookup_reference(const OpCall& call, std::span<const Tensor> outputs) {
  check_rows(call);
  const quantized::BlockRows table(call[0]);
  const std::vector<int64_t> rows = facets::dense_indices(call[1]);
  for (size_t i = 0; i < rows.size(); ++i)
    write_plain_row(call.attrs.as<LookupAttrs>().format, table.row(rows[i]), outputs[0],
                    static_cast<int64_t>(i) * outputs[0].extents().back());
}

const OpDef kQuantizedEmbedding{
    .name = "quantized_embedding",
    .num_inputs = 2,
    .infer = infer_lookup,
    .reference = lookup_reference,
    .gradient = {.none = "quantized tables are frozen; dequantize() the table and use embedding()"},
    .check = check_rows,
    .kernel = lookup_kernel,
    .sharding =
        [](const OpCall& call) {
          return fmt::format("#W[vB] #I[{0}] -> Y[{0}D] | mask{{v}}", facets::dim_letters(call[1].ndim()));
        },
    .samples =
        [] {
          std::vector<Sample> all = samples_of_formats([](BlockFormat format, int64_t elements) {
            return Sample{
                std::string(name_of(format)),
                {quantized::sample_blocks(1, format, 7, elements), facets::sample_tensor(2, {5}, DType::i64, 0, 7)},
                Attrs::of(LookupAttrs{format, DType::f32})};
          });
          const Tensor table = quantized::sample_blocks(3, BlockFormat::q8_0, 7, 64);
          const auto add = [&](const char* name, const Extents& sizes, DType index, DType dtype) {
            all.push_back({name,
                           {table, facets::sample_tensor(4, sizes, index, 0, 7)},
                           Attrs::of(LookupAttrs{BlockFormat::q8_0, dtype})});
          };
          add("i32_bf16", {2, 3}, DType::i32, DType::bf16);
          add("one_f16", {}, DType::i64, DType::f16);
          add("none", {0}, DType::i64, DType::f32);
          return all;
        },
    .tolerance = {.f32 = 0}};

// ---- dequantize

struct DequantizeAttrs {
  BlockFormat format;
  static constexpr auto fields() { return field_list(field::rule<&DequantizeAttrs::format>("format")); }
};

const OpDef kDequantize{
    .name = "dequantize",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          out.add(DType::f32, {call[0].sizes()[0], quantized::elements_of_row(
                                                       call[0].sizes()[1], call.attrs.as<DequantizeAttrs>().format)});
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const quantized::BlockRows rows(call[0]);
          for (int64_t i = 0; i < call[0].extents()[0]; ++i)
            write_plain_row(call.attrs.as<DequantizeAttrs>().format, rows.row(i), outputs[0],
                            i * outputs[0].extents()[1]);
        },
    .gradient = {.none = "blocks are integers"},
    // As above.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const Tensor& out = outputs[0];
          const int64_t elements = out.extents()[1];
          if (out.numel() == 0) return;
          const quantized::BlockRows rows(call[0]);
          ThreadPool::current().parallel_for(
              out.extents()[0], kWorthATask / elements + 1, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i)
                  decode_blocks(call.attrs.as<DequantizeAttrs>().format, rows.row(i),
                                {out.data<float>() + i * elements, static_cast<size_t>(elements)});
              });
        },
    .sharding = [](const OpCall&) { return std::string("#W[nB] -> Y[nK]"); },
    .samples =
        [] {
          std::vector<Sample> all = samples_of_formats([](BlockFormat format, int64_t elements) {
            return Sample{std::string(name_of(format)),
                          {quantized::sample_blocks(1, format, 3, elements)},
                          Attrs::of(DequantizeAttrs{format})};
          });
          all.push_back({"no_rows",
                         {quantized::sample_blocks(2, BlockFormat::q4_0, 0, 32)},
                         Attrs::of(DequantizeAttrs{BlockFormat::q4_0})});
          all.push_back({"no_columns",
                         {quantized::sample_blocks(2, BlockFormat::q4_0, 3, 0)},
                         Attrs::of(DequantizeAttrs{BlockFormat::q4_0})});
          return all;
        },
    .tolerance = {.f32 = 0}};

}  // namespace

Tensor quantized_embedding(const Tensor& blocks, const Tensor& indices, BlockFormat format, DType dtype) {
  quantized::check_blocks("quantized_embedding", blocks, format);
  TUTTI_CHECK(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
              "quantized_embedding: a result of {}; expected f32, bf16 or f16", name_of(dtype));
  return call_op(kQuantizedEmbedding, Attrs::of(LookupAttrs{format, dtype}), blocks, indices);
}

Tensor dequantize(const Tensor& blocks, BlockFormat format) {
  if (blocks.defined() && blocks.ndim() == 3) {
    quantized::check_blocks("dequantize", blocks, format, 3);
    const SymInt rows = blocks.size(0) * blocks.size(1);
    return reshape(dequantize(reshape(blocks, {rows, blocks.size(2)}), format),
                   {blocks.size(0), blocks.size(1), quantized::elements_of_row(blocks.size(2), format)});
  }
  quantized::check_blocks("dequantize", blocks, format);
  return call_op(kDequantize, Attrs::of(DequantizeAttrs{format}), blocks);
}

}  // namespace tutti

TUTTI_OPS(quantized_embedding, &kQuantizedEmbedding, &kDequantize)

#include "tutti/ops/quantized_linear.h"

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

struct QuantizedLinearAttrs {
  BlockFormat format;
  DType dtype;
  static constexpr auto fields() {
    return field_list(field::rule<&QuantizedLinearAttrs::format>("format"),
                      field::output_dtype<&QuantizedLinearAttrs::dtype>("dtype"));
  }
};
const QuantizedLinearAttrs& attrs_of(const OpCall& call) { return call.attrs.as<QuantizedLinearAttrs>(); }

// The operands are x [m, blocks, elements of a block] and blocks [n, blocks, bytes of a block].
void infer(const OpCall& call, OutputMetas& out) {
  out.add(attrs_of(call).dtype, {call[0].sizes()[0], call[1].sizes()[0]});
}

// A kernel and not a recipe: blocks have no elements that a loop could read one by one.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const BlockFormat format = attrs_of(call).format;
  KernelTrace::note_extern(call.op, [&] { return fmt::format("{} blocks, avx2", name_of(format)); });
  const Tensor x = to_contiguous(call[0]), &y = outputs[0];
  const quantized::BlockRows w(call[1]);
  codegen::block_product({.format = format,
                          .m = x.extents()[0],
                          .n = y.extents()[1],
                          .k = x.extents()[1] * x.extents()[2],
                          .x = x.raw_data(),
                          .x_dtype = x.dtype(),
                          .w = w.data,
                          .w_stride = w.stride,
                          .y = y.raw_data(),
                          .y_dtype = y.dtype()},
                         ThreadPool::current());
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &x = call[0], &y = outputs[0];
  const quantized::BlockRows w(call[1]);
  for (int64_t i = 0; i < x.extents()[0]; ++i) {
    std::vector<float> row;
    for (int64_t b = 0; b < x.extents()[1]; ++b)
      for (int64_t e = 0; e < x.extents()[2]; ++e)
        row.push_back(
            static_cast<float>(facets::read_double(x, i * x.strides()[0] + b * x.strides()[1] + e * x.strides()[2])));
    for (int64_t j = 0; j < y.extents()[1]; ++j)
      facets::write_double(y, i * y.strides()[0] + j * y.strides()[1],
                           quantized::plain_product(attrs_of(call).format, w.row(j), row));
  }
}

Cost cost(const OpCall& call) {
  const double m = static_cast<double>(call[0].extents()[0]), n = static_cast<double>(call[1].extents()[0]),
               k = static_cast<double>(call[0].extents()[1] * call[0].extents()[2]);
  return {2.0 * m * n * k, static_cast<double>(call[0].nbytes() + call[1].nbytes()) +
                               m * n * static_cast<double>(itemsize(attrs_of(call).dtype))};
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  const auto add = [&](const char* name, BlockFormat format, const Extents& mnk, DType x, DType y) {
    all.push_back({name,
                   {quantized::in_blocks(facets::sample_tensor(1, {mnk[0], mnk[2]}, x), format),
                    quantized::bytes_in_blocks(quantized::sample_blocks(2, format, mnk[1], mnk[2]), format)},
                   Attrs::of(QuantizedLinearAttrs{format, y})});
  };
  add("q4_0", BlockFormat::q4_0, {1, 9, 32}, DType::f32, DType::f32);
  add("q4_1", BlockFormat::q4_1, {5, 3, 64}, DType::f32, DType::f32);
  add("q5_0", BlockFormat::q5_0, {2, 8, 288}, DType::f32, DType::f32);
  add("q5_1", BlockFormat::q5_1, {4, 2, 64}, DType::f32, DType::bf16);
  add("q8_0", BlockFormat::q8_0, {1, 17, 96}, DType::bf16, DType::bf16);
  add("q4_k", BlockFormat::q4_k, {3, 2, 256}, DType::f32, DType::f32);
  add("q5_k", BlockFormat::q5_k, {1, 2, 512}, DType::f16, DType::f32);
  add("q6_k", BlockFormat::q6_k, {2, 2, 256}, DType::f32, DType::f32);
  add("two_leaves", BlockFormat::q6_k, {1, 1, 2304}, DType::f32, DType::f32);
  add("four_leaves", BlockFormat::q5_1, {2, 3, 608}, DType::f32, DType::bf16);
  add("no_rows", BlockFormat::q4_k, {0, 3, 256}, DType::f32, DType::f32);
  add("no_features", BlockFormat::q8_0, {2, 0, 64}, DType::f32, DType::f32);
  add("no_inner", BlockFormat::q4_1, {2, 9, 0}, DType::f32, DType::f32);
  return all;
}

// A rank may hold some of the rows of W or of x, or some of their blocks, which are quantized as in the whole row.
const OpDef kQuantizedLinear{
    .name = "quantized_linear",
    .num_inputs = 2,
    .infer = infer,
    .reference = reference,
    .gradient = {.none = "the rows of x are rounded to 8 bits; dequantize() the weight and use linear()"},
    .kernel = kernel,
    .sharding =
        [](const OpCall&) { return fmt::format("#x[mkE] #w[nkB] -> y[mn] | tree:{}{{k}} |", codegen::kBlockLeaf); },
    .recompute = Recompute::costly,
    .cost = cost,
    .samples = samples,
    .tolerance = {.f32 = 0}};

}  // namespace

Tensor quantized_linear(const Tensor& x, const Tensor& blocks, BlockFormat format, std::optional<DType> out_dtype) {
  quantized::check_blocks("quantized_linear", blocks, format);
  const DType dtype = quantized::product_dtype("quantized_linear", x, out_dtype);
  const SymInt in = quantized::elements_of_row(blocks.size(1), format);
  TUTTI_CHECK(x.ndim() >= 1 && x.size(-1) == in,
              "quantized_linear: x is {}, and rows of {} bytes hold {} elements of {}; expected x [..., {}]", x.sizes(),
              blocks.size(1), in, name_of(format), in);
  const Tensor y = call_op(kQuantizedLinear, Attrs::of(QuantizedLinearAttrs{format, dtype}),
                           quantized::in_blocks(x, format), quantized::bytes_in_blocks(blocks, format));
  Shape sizes = x.sizes();
  sizes.back() = blocks.size(0);
  return reshape(y, sizes);
}

}  // namespace tutti

TUTTI_OPS(quantized_linear, &kQuantizedLinear)

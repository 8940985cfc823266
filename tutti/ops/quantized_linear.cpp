#include "tutti/ops/quantized_linear.h"

#include <algorithm>

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

// The format of each weight is told by the bytes of its blocks, so that calls of several formats have equal attrs.
struct QuantizedLinearAttrs {
  DType dtype;  // of the results
  static constexpr auto fields() { return field_list(field::output_dtype<&QuantizedLinearAttrs::dtype>("dtype")); }
};
const QuantizedLinearAttrs& attrs_of(const OpCall& call) { return call.attrs.as<QuantizedLinearAttrs>(); }

// The operands are x [m, blocks, elements of a block] and, for each result, blocks [n, blocks, bytes of a block].
void infer(const OpCall& call, OutputMetas& out) {
  for (size_t i = 1; i < call.inputs.size(); ++i)
    out.add(attrs_of(call).dtype, {call[0].sizes()[0], call[i].sizes()[0]});
}

std::string formats_of(const OpCall& call) {
  std::string list;
  for (size_t i = 1; i < call.inputs.size(); ++i)
    list += fmt::format("{}{}", list.empty() ? "" : " ", name_of(quantized::format_of_blocks(call[i])));
  return list;
}

// A kernel and not a recipe: blocks have no elements that a loop could read one by one.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  KernelTrace::note_extern(
      call.op, [&] { return fmt::format("{} blocks, {}", formats_of(call), codegen::instructions_of_blocks()); });
  const Tensor x = to_contiguous(call[0]);
  std::vector<quantized::BlockRows> weights;
  std::vector<codegen::BlockProduct> products;
  weights.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const quantized::BlockRows& w = weights.emplace_back(call[i + 1]);
    products.push_back({.format = quantized::format_of_blocks(call[i + 1]),
                        .m = x.extents()[0],
                        .n = outputs[i].extents()[1],
                        .k = x.extents()[1] * x.extents()[2],
                        .x = x.raw_data(),
                        .x_dtype = x.dtype(),
                        .w = w.data,
                        .w_stride = w.stride,
                        .y = outputs[i].raw_data(),
                        .y_dtype = outputs[i].dtype()});
  }
  codegen::block_products(products, ThreadPool::current());
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  for (int64_t i = 0; i < x.extents()[0]; ++i) {
    std::vector<float> row;
    for (int64_t b = 0; b < x.extents()[1]; ++b)
      for (int64_t e = 0; e < x.extents()[2]; ++e)
        row.push_back(
            static_cast<float>(facets::read_double(x, i * x.strides()[0] + b * x.strides()[1] + e * x.strides()[2])));
    for (size_t of = 0; of < outputs.size(); ++of) {
      const Tensor& y = outputs[of];
      const quantized::BlockRows w(call[of + 1]);
      for (int64_t j = 0; j < y.extents()[1]; ++j)
        facets::write_double(y, i * y.strides()[0] + j * y.strides()[1],
                             quantized::plain_product(quantized::format_of_blocks(call[of + 1]), w.row(j), row));
    }
  }
}

Cost cost(const OpCall& call) {
  const double m = static_cast<double>(call[0].extents()[0]),
               k = static_cast<double>(call[0].extents()[1] * call[0].extents()[2]);
  Cost cost{0, static_cast<double>(call[0].nbytes())};
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const double n = static_cast<double>(call[i].extents()[0]);
    cost.flops += 2.0 * m * n * k;
    cost.bytes += static_cast<double>(call[i].nbytes()) + m * n * static_cast<double>(itemsize(attrs_of(call).dtype));
  }
  return cost;
}

// A rank may hold some of the rows of W or of x, or some of their blocks, which are quantized as in the whole row. The
// features of one of several results cannot be cut alone.
std::string sharding(const OpCall& call) {
  if (call.inputs.size() == 2) return fmt::format("#x[mkE] #w[nkB] -> y[mn] | tree:{}{{k}} |", codegen::kBlockLeaf);
  std::string inputs = "#x[mKE]", outputs;
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    constexpr const char *kRows = "ACDF", *kBytes = "BGHI";
    inputs += fmt::format(" #w{}[{}K{}]", i - 1, kRows[i - 1], kBytes[i - 1]);
    outputs += fmt::format(" y{}[m{}]", i - 1, kRows[i - 1]);
  }
  return fmt::format("{} ->{}", inputs, outputs);
}

std::vector<BlockFormat> formats_like(BlockFormat format) {
  std::vector<BlockFormat> alike;
  for (const BlockFormat other : quantized::block_formats())
    if (row_of(other).elements == row_of(format).elements) alike.push_back(other);
  return alike;
}

std::vector<Sample> samples(int weights) {
  std::vector<Sample> all;
  const auto add = [&](const char* name, BlockFormat format, const Extents& mnk, DType x, DType y) {
    Sample sample{name,
                  {quantized::in_blocks(facets::sample_tensor(1, {mnk[0], mnk[2]}, x), format)},
                  Attrs::of(QuantizedLinearAttrs{y})};
    // The others have the next formats of as many elements a block, and other rows.
    const std::vector<BlockFormat> alike = formats_like(format);
    const auto first = std::find(alike.begin(), alike.end(), format) - alike.begin();
    for (int i = 0; i < weights; ++i) {
      const BlockFormat own = alike[static_cast<size_t>(first + i) % alike.size()];
      const int64_t rows = i == 0 ? mnk[1] : 9 + i;
      sample.inputs.push_back(
          quantized::bytes_in_blocks(quantized::sample_blocks(static_cast<uint64_t>(2 + i), own, rows, mnk[2]), own));
    }
    all.push_back(std::move(sample));
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

extern const OpDef kQuantizedLinear, kQuantizedLinear2, kQuantizedLinear3, kQuantizedLinear4;

const SiblingOps kSiblings{.ops = {&kQuantizedLinear2, &kQuantizedLinear3, &kQuantizedLinear4}, .shared_inputs = 1};

template <int kWeights>
constexpr OpDef product(const char* name) {
  return {.name = name,
          .num_inputs = 1 + kWeights,
          .num_outputs = kWeights,
          .infer = infer,
          .reference = reference,
          .gradient = {.none = "the rows of x are rounded to 8 bits; dequantize() the weight and use linear()"},
          .kernel = kernel,
          .siblings = kWeights == 1 ? &kSiblings : nullptr,
          .sharding = sharding,
          .recompute = Recompute::costly,
          .cost = cost,
          .samples = [] { return samples(kWeights); },
          .tolerance = {.f32 = 0}};
}

const OpDef kQuantizedLinear = product<1>("quantized_linear");
const OpDef kQuantizedLinear2 = product<2>("quantized_linear_2");
const OpDef kQuantizedLinear3 = product<3>("quantized_linear_3");
const OpDef kQuantizedLinear4 = product<4>("quantized_linear_4");

}  // namespace

Tensor quantized_linear(const Tensor& x, const Tensor& blocks, BlockFormat format, std::optional<DType> out_dtype) {
  quantized::check_blocks("quantized_linear", blocks, format);
  const DType dtype = quantized::product_dtype("quantized_linear", x, out_dtype);
  const SymInt in = quantized::elements_of_row(blocks.size(1), format);
  TUTTI_CHECK(x.ndim() >= 1 && x.size(-1) == in,
              "quantized_linear: x is {}, and rows of {} bytes hold {} elements of {}; expected x [..., {}]", x.sizes(),
              blocks.size(1), in, name_of(format), in);
  const Tensor y = call_op(kQuantizedLinear, Attrs::of(QuantizedLinearAttrs{dtype}), quantized::in_blocks(x, format),
                           quantized::bytes_in_blocks(blocks, format));
  Shape sizes = x.sizes();
  sizes.back() = blocks.size(0);
  return reshape(y, sizes);
}

}  // namespace tutti

TUTTI_OPS(quantized_linear, &kQuantizedLinear, &kQuantizedLinear2, &kQuantizedLinear3, &kQuantizedLinear4)

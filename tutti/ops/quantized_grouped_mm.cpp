#include "tutti/ops/quantized_grouped_mm.h"

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/grouped/groups.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using grouped::Group;

struct QuantizedGroupedMmAttrs {
  BlockFormat format;
  DType dtype;
  static constexpr auto fields() {
    return field_list(field::rule<&QuantizedGroupedMmAttrs::format>("format"),
                      field::output_dtype<&QuantizedGroupedMmAttrs::dtype>("dtype"));
  }
};
const QuantizedGroupedMmAttrs& attrs_of(const OpCall& call) { return call.attrs.as<QuantizedGroupedMmAttrs>(); }

// The operands are x [T, blocks, elements of a block], blocks [G, n, blocks, bytes of a block] and offsets [G].
void infer(const OpCall& call, OutputMetas& out) {
  out.add(attrs_of(call).dtype, {call[0].sizes()[0], call[1].sizes()[1]});
}

std::vector<Group> groups_of(const OpCall& call) { return grouped::groups_of(call, call[0].extents()[0]); }

void check(const OpCall& call) { groups_of(call); }

// Calls visit(group, rows of its matrix) for each group that has rows, and stores the identity behind the last group.
template <class Visit>
void for_each_group(const OpCall& call, const Tensor& y, const Visit& visit) {
  const std::vector<Group> groups = groups_of(call);
  const int64_t n = y.extents()[1], end = groups.empty() ? 0 : groups.back().end;
  codegen::store_sum_identity(static_cast<std::byte*>(y.raw_data()) + end * n * itemsize(y.dtype()), y.dtype(),
                              (y.extents()[0] - end) * n);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].size() > 0 && n > 0)
      visit(groups[g], quantized::BlockRows(select(call[1], 0, static_cast<int64_t>(g))));
  }
}

// A kernel and not a recipe: where the operands of a product begin is in memory. Each product takes all threads.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const BlockFormat format = attrs_of(call).format;
  KernelTrace::note_extern(
      call.op, [&] { return fmt::format("{} blocks, {}", name_of(format), codegen::instructions_of_blocks()); });
  const Tensor x = to_contiguous(call[0]), &y = outputs[0];
  const int64_t k = x.extents()[1] * x.extents()[2], n = y.extents()[1];
  for_each_group(call, y, [&](const Group& group, const quantized::BlockRows& w) {
    codegen::block_product({.format = format,
                            .m = group.size(),
                            .n = n,
                            .k = k,
                            .x = static_cast<const std::byte*>(x.raw_data()) + group.begin * k * itemsize(x.dtype()),
                            .x_dtype = x.dtype(),
                            .w = w.data,
                            .w_stride = w.stride,
                            .y = static_cast<std::byte*>(y.raw_data()) + group.begin * n * itemsize(y.dtype()),
                            .y_dtype = y.dtype()},
                           ThreadPool::current());
  });
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor x = to_contiguous(call[0]), &y = outputs[0];
  const int64_t k = x.extents()[1] * x.extents()[2], n = y.extents()[1];
  for_each_group(call, y, [&](const Group& group, const quantized::BlockRows& w) {
    for (int64_t i = group.begin; i < group.end; ++i) {
      std::vector<float> row;
      for (int64_t e = 0; e < k; ++e) row.push_back(static_cast<float>(facets::read_double(x, i * k + e)));
      for (int64_t j = 0; j < n; ++j)
        facets::write_double(y, i * n + j, quantized::plain_product(attrs_of(call).format, w.row(j), row));
    }
  });
}

// As if every row were in a group, and every group had one: how many have is in memory.
Cost cost(const OpCall& call) {
  const double rows = static_cast<double>(call[0].extents()[0]), n = static_cast<double>(call[1].extents()[1]),
               k = static_cast<double>(call[0].extents()[1] * call[0].extents()[2]);
  return {2.0 * rows * n * k, static_cast<double>(call[0].nbytes() + call[1].nbytes()) +
                                  rows * n * static_cast<double>(itemsize(attrs_of(call).dtype))};
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  const auto add = [&](const char* name, BlockFormat format, int64_t rows, const Extents& gnk, const Tensor& offsets,
                       DType x, DType y) {
    const Tensor blocks = quantized::sample_blocks(2, format, gnk[0] * gnk[1], gnk[2]);
    all.push_back({name,
                   {quantized::in_blocks(facets::sample_tensor(1, {rows, gnk[2]}, x), format),
                    quantized::bytes_in_blocks(reshape(blocks, {gnk[0], gnk[1], blocks.size(1)}), format), offsets},
                   Attrs::of(QuantizedGroupedMmAttrs{format, y})});
  };
  const Tensor uneven = Tensor::of<int64_t>({3, 3, 10, 11}), rest = Tensor::of<int32_t>({0, 5, 7});
  add("q4_0", BlockFormat::q4_0, 11, {4, 5, 64}, uneven, DType::f32, DType::f32);
  add("q8_0_bf16_with_a_rest", BlockFormat::q8_0, 9, {3, 9, 32}, rest, DType::bf16, DType::bf16);
  add("q6_k_two_leaves", BlockFormat::q6_k, 2, {2, 2, 2304}, Tensor::of<int64_t>({1, 2}), DType::f32, DType::f32);
  add("q4_k_f16_to_f32", BlockFormat::q4_k, 3, {1, 3, 256}, Tensor::of<int64_t>({3}), DType::f16, DType::f32);
  add("no_rows", BlockFormat::q5_1, 0, {2, 3, 32}, Tensor::of<int64_t>({0, 0}), DType::f32, DType::f32);
  add("no_groups", BlockFormat::q5_0, 3, {0, 3, 32}, Tensor::of<int64_t>({}), DType::f32, DType::f32);
  add("no_features", BlockFormat::q5_k, 2, {1, 0, 256}, Tensor::of<int64_t>({2}), DType::f32, DType::f32);
  add("no_inner", BlockFormat::q4_1, 2, {2, 9, 0}, Tensor::of<int64_t>({1, 2}), DType::f32, DType::f32);
  return all;
}

// Offsets count through all rows, so that neither rows nor groups are cut: those who know which rank has which rows
// divide them (expert parallelism).
const OpDef kQuantizedGroupedMm{
    .name = "quantized_grouped_mm",
    .num_inputs = 3,
    .infer = infer,
    .reference = reference,
    .gradient = {.none = "the rows of x are rounded to 8 bits; dequantize() the weights and use grouped_mm()"},
    .check = check,
    .kernel = kernel,
    .sharding =
        [](const OpCall&) {
          return fmt::format("#x[TkE] #w[GnkB] #o[G] -> y[Tn] | tree:{}{{k}} |", codegen::kBlockLeaf);
        },
    .recompute = Recompute::costly,
    .cost = cost,
    .samples = samples,
    .tolerance = {.f32 = 0}};

}  // namespace

Tensor quantized_grouped_mm(const Tensor& x, const Tensor& blocks, const Tensor& offsets, BlockFormat format,
                            std::optional<DType> out_dtype) {
  constexpr const char* kName = "quantized_grouped_mm";
  quantized::check_blocks(kName, blocks, format, 3);
  const DType dtype = quantized::product_dtype(kName, x, out_dtype);
  const SymInt in = quantized::elements_of_row(blocks.size(2), format);
  TUTTI_CHECK(x.ndim() == 2 && x.size(1) == in,
              "{}: x is {}, and rows of {} bytes hold {} elements of {}; expected x [rows, {}]", kName, x.sizes(),
              blocks.size(2), in, name_of(format), in);
  facets::check_index_dtype(kName, offsets);
  TUTTI_CHECK(offsets.ndim() == 1 && offsets.size(0) == blocks.size(0),
              "{}: the offsets are {}, the blocks {}; expected the end of each group", kName, offsets.sizes(),
              blocks.sizes());
  return call_op(kQuantizedGroupedMm, Attrs::of(QuantizedGroupedMmAttrs{format, dtype}),
                 quantized::in_blocks(x, format), quantized::bytes_in_blocks(blocks, format), offsets);
}

}  // namespace tutti

TUTTI_OPS(quantized_grouped_mm, &kQuantizedGroupedMm)

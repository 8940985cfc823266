#include "tutti/ops/matmul.h"

#include <algorithm>
#include <cmath>

#include "tutti/codegen/gemm/gemm.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

extern const OpDef kMatmul;

struct MatmulAttrs {
  DType out_dtype;
  ContractionAxis axis;
  // Which operands were broadcast over batch dims: the terms of their gradients stay f32 until they are summed (N4).
  std::array<bool, 2> is_broadcast = {false, false};
  static constexpr auto fields() {
    return field_list(field::output_dtype<&MatmulAttrs::out_dtype>("out_dtype"),
                      field::rule<&MatmulAttrs::axis>("axis"),
                      field::number<&MatmulAttrs::is_broadcast>("is_broadcast"));
  }
};

codegen::ContractionTree tree_for(ContractionAxis axis, int64_t k) {
  return axis == ContractionAxis::tokens ? codegen::ContractionTree::halving(k, static_cast<int32_t>(token_grain()))
                                         : codegen::ContractionTree::halving(k);
}

void infer(const OpCall& call, OutputMetas& out) {
  Shape sizes = call[0].sizes();
  sizes.back() = call[1].sizes().back();
  out.add(call.attrs.as<MatmulAttrs>().out_dtype, sizes);
}

// Both operands have the same batch dims; offsets of batch `index` in elements.
int64_t batch_offset(const Tensor& t, int64_t index) {
  int64_t offset = 0;
  for (int d = t.ndim() - 3; d >= 0; --d) {
    offset += index % t.extents()[d] * t.strides()[d];
    index /= t.extents()[d];
  }
  return offset;
}

struct Problem {
  int64_t batch, m, n, k;
};
Problem problem_of(const OpCall& call) {
  const Extents& a = call[0].extents();
  int64_t batch = 1;
  for (int d = 0; d < a.ndim() - 2; ++d) batch *= a[d];
  return {batch, a[a.size() - 2], call[1].extents().back(), a.back()};
}

codegen::GemmOperand operand(const Tensor& t, int64_t batch, bool has_memory = true) {
  const size_t n = static_cast<size_t>(t.ndim());
  const char* data =
      has_memory ? static_cast<const char*>(t.raw_data()) + batch_offset(t, batch) * itemsize(t.dtype()) : nullptr;
  return {data, t.dtype(), t.strides()[n - 2], t.strides()[n - 1]};
}

// c undefined: its elements go to the consumer only.
void multiply(const OpCall& call, const Tensor& c, const BlockPartners& partners) {
  const Problem p = problem_of(call);
  const auto& attrs = call.attrs.as<MatmulAttrs>();
  const codegen::ContractionTree tree = tree_for(attrs.axis, p.k);
  char* out = c.defined() ? static_cast<char*>(c.raw_data()) : nullptr;
  const auto a = [&](int64_t b) { return operand(call[0], b, partners.producer == nullptr); };
  const auto one = [&](int64_t b) {
    const auto ask = [&](const codegen::GemmOperandBlock& block) {
      (*partners.producer)({b * p.m + block.first_row, block.rows, block.first_k, block.length, block.data,
                            block.row_stride, block.column_stride});
    };
    const auto hand_on = [&](const codegen::GemmBlock& block) {
      (*partners.consumer)(
          {b * p.m + block.first_row, block.rows, block.first_column, block.columns, block.data, block.row_stride});
    };
    const codegen::GemmProducer producer(ask);
    const codegen::GemmConsumer consumer(hand_on);
    codegen::gemm(
        p.m, p.n, p.k, a(b), operand(call[1], b),
        {out ? out + b * p.m * p.n * itemsize(attrs.out_dtype) : nullptr, attrs.out_dtype, p.n}, tree,
        {.producer = partners.producer ? &producer : nullptr, .consumer = partners.consumer ? &consumer : nullptr});
  };
  KernelTrace::note_extern(call.op, [&] {
    return codegen::describe_gemm(p.m, p.n, p.k, a(0), operand(call[1], 0), {out, attrs.out_dtype, p.n}, tree);
  });
  // Small products run side by side, large ones take the threads one after the other.
  if (p.batch == 1 || p.m * p.n * p.k >= 1 << 21) {
    for (int64_t b = 0; b < p.batch; ++b) one(b);
    return;
  }
  ThreadPool::current().parallel_for(p.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) one(b);
  });
}

void kernel(const OpCall& call, std::span<const Tensor> outputs) { multiply(call, outputs[0], {}); }

void kernel_in_blocks(const OpCall& call, std::span<const Tensor> outputs, const BlockPartners& partners) {
  multiply(call, outputs[0], partners);
}

// The tree of the contract with every leaf and node in double.
double reference_sum(const Tensor& a, const Tensor& b, int64_t a0, int64_t b0, int64_t begin, int64_t end) {
  const int64_t as = a.strides().back(), bs = b.strides()[static_cast<size_t>(b.ndim() - 2)];
  double sum = 0;
  for (int64_t k = begin; k < end; ++k)
    sum += facets::read_double(a, a0 + k * as) * facets::read_double(b, b0 + k * bs);
  return sum;
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Problem p = problem_of(call);
  const Tensor &a = call[0], &b = call[1];
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        const int64_t a0 = batch_offset(a, batch) + i * a.strides()[static_cast<size_t>(a.ndim() - 2)];
        const int64_t b0 = batch_offset(b, batch) + j * b.strides().back();
        facets::write_double(outputs[0], (batch * p.m + i) * p.n + j, reference_sum(a, b, a0, b0, 0, p.k));
      }
    }
  }
}

Tensor product(const Tensor& a, const Tensor& b, DType out, ContractionAxis axis) {
  return call_op(kMatmul, Attrs::of(MatmulAttrs{out, axis}), a, b);
}
// The sizes of `batch` stand in front of the matrices.
Tensor batched_product(const Tensor& a, const Tensor& b, const Shape& batch, DType out, ContractionAxis axis) {
  const auto expanded = [&](const Tensor& t) {
    Shape sizes = batch;
    sizes.push_back(t.size(-2));
    sizes.push_back(t.size(-1));
    return sizes == t.sizes() ? t : expand(t, sizes);
  };
  const Tensor wide_a = expanded(a), wide_b = expanded(b);
  const MatmulAttrs attrs{out, axis, {!(wide_a.sizes() == a.sizes()), !(wide_b.sizes() == b.sizes())}};
  return call_op(kMatmul, Attrs::of(attrs), wide_a, wide_b);
}

DType gradient_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// dA = G B^T contracts features; dB = A^T G contracts rows, which are tokens when B is a plain matrix (a weight), whose
// gradient then stays f32 (N4).
// As the weight of a linear layer lies when it is multiplied.
bool is_transposed_view(const Tensor& t) { return t.ndim() == 2 && t.strides()[0] == 1 && t.strides()[1] != 1; }

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor& g = call.grads[0];
  if (!g.defined()) return;
  const bool weight = call.input_metas[1].sizes.ndim() == 2;
  const auto dtype_of = [&](size_t i, bool is_sum) {
    return is_sum ? gradient_dtype(call.input_metas[i].dtype) : call.input_metas[i].dtype;
  };
  const auto& attrs = call.attrs.as<MatmulAttrs>();
  if (call.needs(0))
    grads[0] =
        product(g, transpose(call.inputs[1], -1, -2), dtype_of(0, attrs.is_broadcast[0]), ContractionAxis::features);
  if (call.needs(1)) {
    const DType out = dtype_of(1, weight || attrs.is_broadcast[1]);
    const ContractionAxis axis = weight ? ContractionAxis::tokens : ContractionAxis::features;
    // The gradient lies as the operand does, so that norms and optimizers, which read both, walk through memory: the
    // same products in the same order.
    grads[1] = is_transposed_view(call.inputs[1])
                   ? transpose(product(transpose(g, 0, 1), call.inputs[0], out, axis), 0, 1)
                   : product(transpose(call.inputs[0], -1, -2), g, out, axis);
  }
}

std::string sharding(const OpCall& call) {
  std::string batch;
  for (int d = 0; d < call[0].ndim() - 2; ++d) batch += static_cast<char>('a' + d);
  const MatmulAttrs& a = call.attrs.as<MatmulAttrs>();
  const int64_t leaf = a.axis == ContractionAxis::tokens ? token_grain() : codegen::contraction_leaf();
  return fmt::format("A[{0}mk] B[{0}kn] -> C[{0}mn] | tree:{1}{{k}} | bilin", batch, leaf);
}

Cost cost(const OpCall& call) {
  const Problem p = problem_of(call);
  const double item = static_cast<double>(itemsize(call.attrs.as<MatmulAttrs>().out_dtype));
  return {2.0 * static_cast<double>(p.batch * p.m) * static_cast<double>(p.n * p.k),
          static_cast<double>(call[0].nbytes() + call[1].nbytes()) + static_cast<double>(p.batch * p.m * p.n) * item};
}

std::vector<Sample> samples() {
  using facets::sample_tensor;
  std::vector<Sample> list;
  const auto add = [&](const char* name, const Extents& a, const Extents& b, DType dtype, DType out) {
    list.push_back({name,
                    {sample_tensor(1, a, dtype), sample_tensor(2, b, dtype)},
                    Attrs::of(MatmulAttrs{out, ContractionAxis::features})});
  };
  add("square_f32", {17, 17}, {17, 17}, DType::f32, DType::f32);
  add("odd_f32", {3, 300}, {300, 7}, DType::f32, DType::f32);
  add("row_f32", {1, 33}, {33, 65}, DType::f32, DType::f32);
  add("batched_f32", {2, 3, 5, 9}, {2, 3, 9, 4}, DType::f32, DType::f32);
  add("f64", {5, 6}, {6, 3}, DType::f64, DType::f64);
  add("bf16", {9, 130}, {130, 5}, DType::bf16, DType::bf16);
  add("bf16_to_f32", {9, 130}, {130, 5}, DType::bf16, DType::f32);
  add("f16", {4, 31}, {31, 8}, DType::f16, DType::f16);
  add("no_rows_f32", {0, 4}, {4, 3}, DType::f32, DType::f32);
  add("no_inner_f32", {2, 0}, {0, 3}, DType::f32, DType::f32);
  return list;
}

const OpDef kMatmul{.name = "matmul",
                    .num_inputs = 2,
                    .infer = infer,
                    .reference = reference,
                    .gradient = {.vjp = vjp, .saves_inputs = 0b11},
                    .kernel = kernel,  // the tree GEMM of codegen: register tiles and packing are no loop recipe
                    .kernel_in_blocks = kernel_in_blocks,
                    .sharding = sharding,
                    .recompute = Recompute::costly,
                    .cost = cost,
                    .samples = samples,
                    .tolerance = {.f32 = 2e-5}};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  TUTTI_CHECK(a.ndim() >= 1 && b.ndim() >= 1, "matmul: both operands need at least one dim: a is {}, b is {}",
              a.sizes(), b.sizes());
  TUTTI_CHECK(is_floating(a.dtype()) && is_floating(b.dtype()) && !is_fp8(a.dtype()) && !is_fp8(b.dtype()),
              "matmul: needs float operands (f64, f32, bf16, f16): a is {}, b is {}; cast() them", describe(a),
              describe(b));
  if (a.ndim() == 1) return squeeze(matmul(reshape(a, {1, a.size(0)}), b, options), b.ndim() == 1 ? 0 : -2);
  if (b.ndim() == 1) return squeeze(matmul(a, reshape(b, {b.size(0), 1}), options), -1);
  if (!(a.size(-1) == b.size(-2))) {
    const bool transposed_fits = a.size(-1) == b.size(-1);
    throw UsageError(fmt::format("matmul: inner sizes differ: a is {}, b is {}; expected b.size(-2) == {}.{}",
                                 a.sizes(), b.sizes(), a.size(-1),
                                 transposed_fits ? " Did you mean transpose(b, -1, -2)?" : ""));
  }
  const DType out = options.out_dtype.value_or(promote(a.dtype(), b.dtype()));
  if (b.ndim() == 2 && a.ndim() > 2) {  // leading dims of a are rows of one matrix: tokens in their order
    Shape sizes = a.sizes();
    sizes.back() = b.size(1);
    return reshape(product(reshape(a, {-1, a.size(-1)}), b, out, options.axis), sizes);
  }
  const auto batch_of = [](const Tensor& t) {
    Shape sizes = t.sizes();
    sizes.pop_back();
    sizes.pop_back();
    return sizes;
  };
  if (a.ndim() == 2 && b.ndim() == 2) return product(a, b, out, options.axis);
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "matmul");
  return batched_product(a, b, batch, out, options.axis);
}

bool has_rows_apart(const OpCall& product) {
  return &product.op == &kMatmul && product[0].ndim() == 2 && product[1].ndim() == 2 &&
         product.attrs.as<MatmulAttrs>().axis == ContractionAxis::features;
}

void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b) {
  TUTTI_CHECK(a.ndim() == 2 && b.ndim() == 2 && a.extent(1) == b.extent(0) &&
                  out.extents() == (Extents{a.extent(0), b.extent(1)}) && out.is_contiguous(),
              "matmul_into: a is {}, b is {}, the result {}; expected [m, k], [k, n] and a dense [m, n]", describe(a),
              describe(b), describe(out));
  const Tensor inputs[] = {a, b};
  const Attrs attrs = Attrs::of(MatmulAttrs{out.dtype(), ContractionAxis::features});
  kernel({kMatmul, inputs, attrs}, {&out, 1});
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  TUTTI_CHECK(a.ndim() == 3 && b.ndim() == 3 && a.size(0) == b.size(0),
              "bmm: needs [b, m, k] and [b, k, n] with one batch size: a is {}, b is {}", a.sizes(), b.sizes());
  return matmul(a, b);
}

Tensor linear(const Tensor& x, const Tensor& weight) {
  TUTTI_CHECK(weight.ndim() == 2 && x.ndim() >= 1 && x.size(-1) == weight.size(1),
              "linear: x is {}, weight {}; expected weight [out, in] with in == {}", x.sizes(), weight.sizes(),
              x.ndim() ? x.size(-1) : SymInt(0));
  return matmul(x, transpose(weight, 0, 1));
}

}  // namespace tutti

TUTTI_OPS(matmul, &::tutti::kMatmul)

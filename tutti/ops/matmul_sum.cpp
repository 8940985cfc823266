#include "tutti/ops/matmul_sum.h"

#include <vector>

#include "tutti/codegen/gemm/gemm.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"

// Inputs of a call are all a, then all b.
namespace tutti {
namespace {

constexpr char kInner[] = "abcdefghijkl";
static_assert(sizeof(kInner) == kMaxProducts + 1);

struct MatmulSumAttrs {
  DType out_dtype;
  static constexpr auto fields() { return field_list(field::output_dtype<&MatmulSumAttrs::out_dtype>("out_dtype")); }
};

size_t pairs_of(const OpCall& call) { return call.inputs.size() / 2; }

void infer(const OpCall& call, OutputMetas& out) {
  out.add(call.attrs.as<MatmulSumAttrs>().out_dtype, {call[0].size(0), call[pairs_of(call)].size(1)});
}

codegen::GemmOperand operand(const Tensor& t, bool has_memory = true) {
  return {has_memory ? t.raw_data() : nullptr, t.dtype(), t.strides()[0], t.strides()[1]};
}

// c undefined: its elements go to the consumer only.
void multiply(const OpCall& call, const Tensor& c, const BlockPartners& partners) {
  const size_t pairs = pairs_of(call);
  std::vector<codegen::GemmSource> sources;
  for (size_t i = 0; i < pairs; ++i) {
    const bool is_produced = i == 0 && partners.producer != nullptr;
    sources.push_back({operand(call[i], !is_produced), operand(call[pairs + i]), call[i].extent(1)});
  }
  const int64_t m = call[0].extent(0), n = call[pairs].extent(1);
  const codegen::GemmResult result{c.defined() ? c.raw_data() : nullptr, call.attrs.as<MatmulSumAttrs>().out_dtype, n};
  const auto ask = [&](const codegen::GemmOperandBlock& b) {
    (*partners.producer)({b.first_row, b.rows, b.first_k, b.length, b.data, b.row_stride, b.column_stride});
  };
  const auto hand_on = [&](const codegen::GemmBlock& b) {
    (*partners.consumer)({b.first_row, b.rows, b.first_column, b.columns, b.data, b.row_stride});
  };
  const codegen::GemmProducer producer(ask);
  const codegen::GemmConsumer consumer(hand_on);
  KernelTrace::note_extern(call.op, [&] { return codegen::describe_interleaved_gemm(m, n, sources, result); });
  codegen::interleaved_gemm(
      m, n, sources, result,
      {.producer = partners.producer ? &producer : nullptr, .consumer = partners.consumer ? &consumer : nullptr});
}

void kernel(const OpCall& call, std::span<const Tensor> outputs) { multiply(call, outputs[0], {}); }

void kernel_in_blocks(const OpCall& call, std::span<const Tensor> outputs, const BlockPartners& partners) {
  multiply(call, outputs[0], partners);
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const size_t pairs = pairs_of(call);
  const int64_t m = outputs[0].extent(0), n = outputs[0].extent(1);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = -0.0;
      for (size_t x = 0; x < pairs; ++x) {
        const Tensor &a = call[x], &b = call[pairs + x];
        for (int64_t k = 0; k < a.extent(1); ++k)
          sum += facets::read_double(a, i * a.strides()[0] + k * a.strides()[1]) *
                 facets::read_double(b, k * b.strides()[0] + j * b.strides()[1]);
      }
      facets::write_double(outputs[0], i * n + j, sum);
    }
  }
}

// As for matmul(): a contracts features, b is a weight whose gradient sums over tokens and stays f32.
void vjp(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor& g = call.grads[0];
  if (!g.defined()) return;
  const size_t pairs = call.inputs.size() / 2;
  for (size_t i = 0; i < pairs; ++i) {
    const size_t j = pairs + i;
    const DType weight = call.input_metas[j].dtype == DType::f64 ? DType::f64 : DType::f32;
    if (call.needs(static_cast<int>(i)))
      grads[i] = matmul(g, transpose(call.inputs[j], 0, 1), {.out_dtype = call.input_metas[i].dtype});
    if (call.needs(static_cast<int>(j)))
      grads[j] = matmul(transpose(call.inputs[i], 0, 1), g, {.out_dtype = weight, .axis = ContractionAxis::tokens});
  }
}

std::string sharding(const OpCall& call) {
  const size_t pairs = pairs_of(call);
  std::string a, b, inner;
  for (size_t i = 0; i < pairs; ++i) {
    a += fmt::format("a{}[m{}] ", i, kInner[i]);
    b += fmt::format("b{}[{}n] ", i, kInner[i]);
    inner += fmt::format("{}{}", i == 0 ? "" : "+", kInner[i]);
  }
  return fmt::format("{}{}-> c[mn] | tree:{}{{{}}} |", a, b, codegen::contraction_leaf(), inner);
}

Cost cost(const OpCall& call) {
  const size_t pairs = pairs_of(call);
  double products = 0, bytes = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) bytes += static_cast<double>(call[i].nbytes());
  for (size_t i = 0; i < pairs; ++i) products += static_cast<double>(call[i].extent(1));
  const double elements = static_cast<double>(call[0].extent(0)) * static_cast<double>(call[pairs].extent(1));
  return {2.0 * elements * products,
          bytes + elements * static_cast<double>(itemsize(call.attrs.as<MatmulSumAttrs>().out_dtype))};
}

std::vector<Sample> samples() {
  using facets::sample_tensor;
  std::vector<Sample> list;
  const auto add = [&](const char* name, int64_t m, std::vector<int64_t> inner, int64_t n, DType dtype, DType out) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < inner.size(); ++i) inputs.push_back(sample_tensor(1 + i, {m, inner[i]}, dtype));
    for (size_t i = 0; i < inner.size(); ++i) inputs.push_back(sample_tensor(20 + i, {inner[i], n}, dtype));
    list.push_back({name, std::move(inputs), Attrs::of(MatmulSumAttrs{out})});
  };
  add("two_f32", 9, {12, 12}, 5, DType::f32, DType::f32);
  add("three_f32", 5, {300, 150, 150}, 7, DType::f32, DType::f32);
  add("one_f32", 3, {33}, 4, DType::f32, DType::f32);
  add("uneven_f32", 4, {1, 7, 0}, 3, DType::f32, DType::f32);
  add("f64", 5, {6, 3}, 3, DType::f64, DType::f64);
  add("bf16", 9, {130, 40}, 5, DType::bf16, DType::bf16);
  add("bf16_to_f32", 9, {130, 40}, 5, DType::bf16, DType::f32);
  add("f16", 4, {31, 31}, 8, DType::f16, DType::f16);
  add("no_rows_f32", 0, {4, 2}, 3, DType::f32, DType::f32);
  add("no_inner_f32", 2, {0, 0}, 3, DType::f32, DType::f32);
  return list;
}

const OpDef kMatmulSum{.name = "matmul_sum",
                       .num_inputs = -1,
                       .infer = infer,
                       .reference = reference,
                       .gradient = {.vjp = vjp, .saves_inputs = ~uint32_t{0}},
                       .kernel = kernel,  // the tree GEMM of codegen, as for matmul
                       .kernel_in_blocks = kernel_in_blocks,
                       .sharding = sharding,
                       .recompute = Recompute::costly,
                       .cost = cost,
                       .samples = samples,
                       .tolerance = {.f32 = 2e-5}};

}  // namespace

namespace {

// All a, then all b.
std::vector<Tensor> operands(std::span<const Tensor> a, std::span<const Tensor> b, DType& common) {
  TUTTI_CHECK(a.size() == b.size() && !a.empty() && a.size() <= kMaxProducts,
              "matmul_sum: {} left and {} right operands; expected as many of each, from 1 to {}", a.size(), b.size(),
              kMaxProducts);
  std::vector<Tensor> inputs(a.begin(), a.end());
  inputs.insert(inputs.end(), b.begin(), b.end());
  common = a[0].dtype();
  for (const Tensor& t : inputs) {
    TUTTI_CHECK(t.ndim() == 2 && is_floating(t.dtype()) && !is_fp8(t.dtype()),
                "matmul_sum: an operand is {}; expected matrices of floats (f64, f32, bf16, f16)", describe(t));
    common = promote(common, t.dtype());
  }
  for (size_t i = 0; i < a.size(); ++i) {
    TUTTI_CHECK(a[i].size(1) == b[i].size(0) && a[i].size(0) == a[0].size(0) && b[i].size(1) == b[0].size(1),
                "matmul_sum: a[{0}] is {1}, b[{0}] is {2}; expected [{3}, k] and [k, {4}], as of the first pair", i,
                describe(a[i]), describe(b[i]), a[0].size(0), b[0].size(1));
  }
  return inputs;
}

}  // namespace

Tensor matmul_sum(std::span<const Tensor> a, std::span<const Tensor> b, const MatmulSumOptions& options) {
  DType common;
  const std::vector<Tensor> inputs = operands(a, b, common);
  return apply1(kMatmulSum, inputs, Attrs::of(MatmulSumAttrs{options.out_dtype.value_or(common)}));
}

void matmul_sum_into(const Tensor& out, std::span<const Tensor> a, std::span<const Tensor> b) {
  DType common;
  const std::vector<Tensor> inputs = operands(a, b, common);
  TUTTI_CHECK(out.extents() == (Extents{a[0].extent(0), b[0].extent(1)}) && out.is_contiguous(),
              "matmul_sum_into: the result is {}; expected a dense [{}, {}]", describe(out), a[0].extent(0),
              b[0].extent(1));
  kernel({kMatmulSum, inputs, Attrs::of(MatmulSumAttrs{out.dtype()})}, {&out, 1});
}

bool is_matmul_sum(const OpCall& call) { return &call.op == &kMatmulSum; }

}  // namespace tutti

TUTTI_OPS(matmul_sum, &::tutti::kMatmulSum)

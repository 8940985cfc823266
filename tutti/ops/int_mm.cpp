#include "tutti/ops/int_mm.h"

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/int8.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/reshape.h"

namespace tutti {
namespace {

void infer(const OpCall& call, OutputMetas& out) { out.add(DType::i32, {call[0].sizes()[0], call[1].sizes()[1]}); }

codegen::GemmOperand operand(const Tensor& t) { return {t.raw_data(), t.dtype(), t.strides()[0], t.strides()[1]}; }

// A kernel and not a recipe: the tiles of GEMM.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& c = outputs[0];
  KernelTrace::note_extern(call.op, [] {
    const codegen::CpuTarget target = codegen::cpu_target();
    const bool has_quads = codegen::int8_items(target) == codegen::Int8Items::quads;
    return fmt::format("int8 gemm {}, {} of k", name_of(target), has_quads ? "quadruples" : "pairs");
  });
  codegen::int8_gemm(c.extents()[0], c.extents()[1], call[0].extents()[1], operand(call[0]), operand(call[1]),
                     {c.raw_data(), DType::i32, c.extents()[1]});
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &a = call[0], &b = call[1];
  const int64_t m = a.extents()[0], k = a.extents()[1], n = b.extents()[1];
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += facets::read_int64(a, i * a.strides()[0] + p * a.strides()[1]) *
               facets::read_int64(b, p * b.strides()[0] + j * b.strides()[1]);
      facets::write_int64(outputs[0], i * n + j, static_cast<int32_t>(static_cast<uint32_t>(sum)));
    }
  }
}

Cost cost(const OpCall& call) {
  const double m = static_cast<double>(call[0].extents()[0]), n = static_cast<double>(call[1].extents()[1]),
               k = static_cast<double>(call[0].extents()[1]);
  return {2.0 * m * n * k, m * k + k * n + 4.0 * m * n};
}

std::vector<Sample> samples() {
  const auto integers = [](uint64_t seed, const Extents& sizes) {
    return facets::sample_tensor(seed, sizes, DType::i8, -128, 128);
  };
  return {{"square", {integers(1, {16, 16}), integers(2, {16, 16})}, {}},
          {"odd", {integers(3, {3, 31}), integers(4, {31, 9})}, {}},
          {"row", {integers(5, {1, 70}), integers(6, {70, 17})}, {}},
          {"no_rows", {integers(7, {0, 4}), integers(8, {4, 3})}, {}},
          {"no_inner", {integers(9, {2, 0}), integers(10, {0, 3})}, {}}};
}

const OpDef kIntMm{.name = "int_mm",
                   .num_inputs = 2,
                   .infer = infer,
                   .reference = reference,
                   .gradient = {.none = "integers have no gradient; multiply in floats where one is needed"},
                   .kernel = kernel,
                   // Sums modulo 2^32 do not depend on their order; terms of an i8 operand would wrap on their own.
                   .sharding = [](const OpCall&) { return std::string("#a[mk] #b[kn] -> c[mn] | sum{k} | | sum{k}"); },
                   .recompute = Recompute::costly,
                   .cost = cost,
                   .samples = samples};

}  // namespace

Tensor int_mm(const Tensor& a, const Tensor& b) {
  TUTTI_CHECK(a.dtype() == DType::i8 && b.dtype() == DType::i8, "int_mm: a is {}, b is {}; both must be i8",
              describe(a), describe(b));
  TUTTI_CHECK(a.ndim() >= 2 && b.ndim() == 2, "int_mm: a is {}, b is {}; expected [..., m, k] and [k, n]", a.sizes(),
              b.sizes());
  TUTTI_CHECK(a.size(-1) == b.size(0), "int_mm: inner sizes differ: a is {}, b is {}; expected b.size(0) == {}",
              a.sizes(), b.sizes(), a.size(-1));
  if (a.ndim() == 2) return call_op(kIntMm, {}, a, b);
  Shape sizes = a.sizes();
  sizes.back() = b.size(1);
  return reshape(call_op(kIntMm, {}, reshape(a, {-1, a.size(-1)}), b), sizes);
}

}  // namespace tutti

TUTTI_OPS(int_mm, &kIntMm)

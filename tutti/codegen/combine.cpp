#include "tutti/codegen/combine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "tutti/codegen/kernel.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using codegen::Kernel;
using codegen::KernelSpec;

// One kernel takes so many operands; more ranks go through parts of the tree first.
constexpr size_t kOperands = 8;
// Elements per pass when partial results are kept: they stay in the first-level cache.
constexpr int64_t kBlock = 1024;

enum class Stage : uint8_t {
  whole,   // storage values in, storage value out, average taken
  lower,   // storage values in, compute-dtype partial out
  upper,   // compute-dtype partials in, storage value out, average taken
};

ScalarOp pairwise(ReduceKind kind, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (kind) {
    case ReduceKind::sum: case ReduceKind::avg: case ReduceKind::premul_sum: return boolean ? ScalarOp::bit_or : ScalarOp::add;
    case ReduceKind::product: return boolean ? ScalarOp::bit_and : ScalarOp::mul;
    case ReduceKind::min: return boolean ? ScalarOp::bit_and : ScalarOp::minimum;
    case ReduceKind::max: return boolean ? ScalarOp::bit_or : ScalarOp::maximum;
    case ReduceKind::band: return ScalarOp::bit_and;
    case ReduceKind::bor: return ScalarOp::bit_or;
    case ReduceKind::bxor: return ScalarOp::bit_xor;
  }
  throw InternalError("unknown reduce op");
}

Expr tree(ScalarOp op, std::span<const Expr> values) {
  if (values.size() == 1) return values[0];
  const size_t left = (values.size() + 1) / 2;
  const Expr a = tree(op, values.first(left)), b = tree(op, values.subspan(left));
  return apply_scalar(op, a, b);
}

KernelSpec make_spec(ReduceKind kind, DType dtype, size_t width, Stage stage) {
  const DType compute = compute_dtype(dtype);
  const DType in = stage == Stage::upper ? compute : dtype, out = stage == Stage::lower ? compute : dtype;
  KernelSpec spec;
  spec.name = fmt::format("combine_{}_{}_{}", name_of(kind), name_of(dtype), width);
  ExprPool pool;
  std::vector<Expr> values;
  for (size_t r = 0; r < width; ++r) {
    spec.inputs.push_back({in, codegen::StrideClass::contiguous});
    const Expr value = pool.arg(static_cast<int>(r), in);
    const bool scale = kind == ReduceKind::premul_sum && stage != Stage::upper;
    values.push_back(scale ? value * pool.param(static_cast<int>(r), compute) : value);
  }
  Expr result = tree(pairwise(kind, dtype), values);
  if (kind == ReduceKind::avg && stage != Stage::lower) {
    const Expr ranks = pool.param(0, compute);
    result = apply_scalar(is_integral(compute) ? ScalarOp::truncdiv : ScalarOp::truediv, result, ranks);
  }
  spec.outputs = {{out, codegen::StrideClass::contiguous}};
  spec.nodes = pool.nodes();
  spec.results = {result.id()};
  return spec;
}

// A look at a table of pointers before the kernel cache, which hashes.
const Kernel& kernel_of(ReduceKind kind, DType dtype, size_t width, Stage stage) {
  static std::array<std::atomic<const Kernel*>, kNumReduceKinds * kNumDTypes * kOperands * 3> known;
  const size_t at = ((static_cast<size_t>(kind) * kNumDTypes + static_cast<size_t>(dtype)) * kOperands + width - 1) * 3 +
                    static_cast<size_t>(stage);
  const Kernel* kernel = known[at].load(std::memory_order_acquire);
  if (kernel == nullptr) {
    kernel = &codegen::kernel_for(make_spec(kind, dtype, width, stage));
    known[at].store(kernel, std::memory_order_release);
  }
  return *kernel;
}

struct Job {
  ReduceKind kind;
  DType dtype;
  size_t ranks;
};

// At most kWidth inputs: what is set up for others takes longer than a few elements.
template <size_t kWidth>
void run_at_most(const Job& job, Stage stage, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
                 std::byte* out) {
  codegen::OperandCall operands[kWidth + 1];
  codegen::ParamValue params[kWidth];
  for (size_t r = 0; r < inputs.size(); ++r) operands[r] = {.data = const_cast<std::byte*>(inputs[r])};
  operands[inputs.size()] = {.data = out};
  for (size_t r = 0; r < factors.size(); ++r) params[r].f = factors[r];
  if (job.kind == ReduceKind::avg) {
    if (is_integral(job.dtype)) params[0].i = static_cast<int64_t>(job.ranks);
    else params[0].f = static_cast<double>(job.ranks);
  }
  uint32_t error = 0;
  const codegen::KernelCall call{.operands = operands, .params = params, .n_inner = count, .error = &error};
  kernel_of(job.kind, job.dtype, inputs.size(), stage).entry(&call);
}

void run(const Job& job, Stage stage, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
         std::byte* out) {
  if (inputs.size() <= 2) run_at_most<2>(job, stage, inputs, factors, count, out);
  else run_at_most<kOperands>(job, stage, inputs, factors, count, out);
}

// The reduction of partial results to another one.
Job partial_job(const Job& job) {
  const bool is_sum = job.kind == ReduceKind::avg || job.kind == ReduceKind::premul_sum;
  return {is_sum ? ReduceKind::sum : job.kind, compute_dtype(job.dtype), 2};
}

// The partial results of at most kOperands subtrees that make up the tree over `inputs`, in compute dtype.
void run_tree(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
              std::byte* out, Stage stage);

void run_parts(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
               std::byte* out, Stage top) {
  const int64_t width = itemsize(compute_dtype(job.dtype));
  std::array<std::byte, 2 * kBlock * 8> scratch;
  const size_t left = (inputs.size() + 1) / 2;
  std::byte* const halves[] = {scratch.data(), scratch.data() + kBlock * width};
  const auto sub = [&](size_t begin, size_t n, std::byte* to) {
    run_tree(job, inputs.subspan(begin, n), factors.empty() ? factors : factors.subspan(begin, n), count, to, Stage::lower);
  };
  sub(0, left, halves[0]);
  sub(left, inputs.size() - left, halves[1]);
  const std::byte* const both[] = {halves[0], halves[1]};
  run(top == Stage::whole ? job : partial_job(job), Stage::upper, both, {}, count, out);
}

void run_tree(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
              std::byte* out, Stage stage) {
  if (inputs.size() <= kOperands) run(job, stage, inputs, factors, count, out);
  else run_parts(job, inputs, factors, count, out, stage);
}

// Calls run(inputs, count, out) for blocks whose partial results stay in the first-level cache.
template <class Run>
void in_blocks(std::span<const std::byte* const> inputs, int64_t in_bytes, int64_t out_bytes, int64_t count, std::byte* out, const Run& run_block) {
  std::vector<const std::byte*> at(inputs.begin(), inputs.end());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    for (size_t r = 0; r < at.size(); ++r) at[r] = inputs[r] + begin * in_bytes;
    run_block(at, std::min(kBlock, count - begin), out + begin * out_bytes);
  }
}

// Takes values in the dtype of the job.
void run_stage(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count, std::byte* out, Stage stage) {
  TUTTI_ASSERT(!inputs.empty() && (job.kind != ReduceKind::premul_sum || factors.size() == inputs.size()),
               "combine of {} inputs with {} factors", inputs.size(), factors.size());
  if (inputs.size() <= kOperands) {
    if (count > 0) run(job, stage, inputs, factors, count, out);
    return;
  }
  in_blocks(inputs, itemsize(job.dtype), itemsize(stage == Stage::lower ? compute_dtype(job.dtype) : job.dtype), count, out,
            [&](std::span<const std::byte* const> at, int64_t block, std::byte* to) { run_tree(job, at, factors, block, to, stage); });
}

}  // namespace

void combine(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs, std::span<const double> factors,
             int64_t count, std::byte* out) {
  run_stage({kind, dtype, inputs.size()}, inputs, factors, count, out, Stage::whole);
}

void combine_part(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs, std::span<const double> factors,
                  int64_t count, std::byte* out) {
  run_stage({kind, dtype, inputs.size()}, inputs, factors, count, out, Stage::lower);
}

void combine_parts(ReduceKind kind, DType dtype, std::span<const std::byte* const> parts, int ranks, int64_t count, std::byte* out) {
  const Job job{kind, dtype, static_cast<size_t>(ranks)}, partial = partial_job(job);
  if (parts.size() <= kOperands) {
    if (count > 0) run(job, Stage::upper, parts, {}, count, out);
    return;
  }
  const int64_t wide = itemsize(partial.dtype);
  const size_t left = (parts.size() + 1) / 2;
  std::array<std::byte, 2 * kBlock * 8> scratch;
  const std::byte* const both[] = {scratch.data(), scratch.data() + kBlock * wide};
  in_blocks(parts, wide, itemsize(dtype), count, out, [&](std::span<const std::byte* const> at, int64_t block, std::byte* to) {
    run_tree(partial, at.first(left), {}, block, scratch.data(), Stage::lower);
    run_tree(partial, at.subspan(left), {}, block, scratch.data() + kBlock * wide, Stage::lower);
    run(job, Stage::upper, both, {}, block, to);
  });
}

}  // namespace tutti::comm

#include "tutti/codegen/combine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
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
constexpr int64_t kMostPartBytes = 16;

enum class Stage : uint8_t {
  whole,    // storage values in, storage value out, average taken
  lower,    // storage values in, partial result out
  between,  // partial results in, partial result out
  upper,    // partial results in, storage value out, average taken
};
constexpr size_t kStages = 4;
bool takes_values(Stage stage) { return stage == Stage::whole || stage == Stage::lower; }
bool finishes(Stage stage) { return stage == Stage::whole || stage == Stage::upper; }

// The average of equal floats is that float, which the quotient of their sum often is not: (x + x + x) / 3 rounds
// twice, and sums of large numbers are infinite. So a partial result of an average is a pair in compute dtype: the sum,
// and the value that all terms have, or NaN.
bool has_pairs(ReduceKind kind, DType dtype) { return kind == ReduceKind::avg && is_floating(dtype); }

ScalarOp pairwise(ReduceKind kind, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
      return boolean ? ScalarOp::bit_or : ScalarOp::add;
    case ReduceKind::product:
      return boolean ? ScalarOp::bit_and : ScalarOp::mul;
    case ReduceKind::min:
      return boolean ? ScalarOp::bit_and : ScalarOp::minimum;
    case ReduceKind::max:
      return boolean ? ScalarOp::bit_or : ScalarOp::maximum;
    case ReduceKind::band:
      return ScalarOp::bit_and;
    case ReduceKind::bor:
      return ScalarOp::bit_or;
    case ReduceKind::bxor:
      return ScalarOp::bit_xor;
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
  const DType in = takes_values(stage) ? dtype : compute, out = finishes(stage) ? dtype : compute;
  const bool pairs = has_pairs(kind, dtype), takes_pairs = pairs && !takes_values(stage),
             gives_pairs = pairs && !finishes(stage);
  KernelSpec spec;
  spec.name = fmt::format("combine_{}_{}_{}", name_of(kind), name_of(dtype), width);
  ExprPool pool;
  const auto input = [&] {
    spec.inputs.push_back({in, takes_pairs ? codegen::StrideClass::strided : codegen::StrideClass::contiguous});
    return pool.arg(static_cast<int>(spec.inputs.size()) - 1, in);
  };
  std::vector<Expr> values, terms;  // terms: those of each input, if they are equal
  for (size_t r = 0; r < width; ++r) {
    const Expr value = input();
    const bool scale = kind == ReduceKind::premul_sum && takes_values(stage);
    values.push_back(scale ? value * pool.param(static_cast<int>(r), compute) : value);
    terms.push_back(cast(takes_pairs ? input() : value, compute));
  }
  Expr result = tree(pairwise(kind, dtype), values);
  std::vector<Expr> results = {result};
  if (pairs) {
    Expr are_equal = apply_scalar(ScalarOp::eq, terms[0], terms[0]);  // NaN equals nothing
    for (size_t r = 1; r < width; ++r)
      are_equal = apply_scalar(ScalarOp::bit_and, are_equal, apply_scalar(ScalarOp::eq, terms[0], terms[r]));
    if (gives_pairs) {
      results.push_back(where(are_equal, terms[0], pool.constant(std::numeric_limits<double>::quiet_NaN(), compute)));
    } else {
      // Zeros of both signs are equal, and their sum has the sign of the average.
      const Expr keeps =
          apply_scalar(ScalarOp::bit_and, are_equal, apply_scalar(ScalarOp::ne, terms[0], pool.constant(0, compute)));
      results[0] = where(keeps, terms[0], apply_scalar(ScalarOp::truediv, result, pool.param(0, compute)));
    }
  } else if (kind == ReduceKind::avg && finishes(stage)) {
    results[0] = apply_scalar(ScalarOp::truncdiv, result, pool.param(0, compute));
  }
  for (const Expr& each : results) {
    spec.outputs.push_back({out, gives_pairs ? codegen::StrideClass::strided : codegen::StrideClass::contiguous});
    spec.results.push_back(each.id());
  }
  spec.nodes = pool.nodes();
  return spec;
}

// A look at a table of pointers before the kernel cache, which hashes.
const Kernel& kernel_of(ReduceKind kind, DType dtype, size_t width, Stage stage) {
  static std::array<std::atomic<const Kernel*>, kNumReduceKinds * kNumDTypes * kOperands * kStages> known;
  const size_t at =
      ((static_cast<size_t>(kind) * kNumDTypes + static_cast<size_t>(dtype)) * kOperands + width - 1) * kStages +
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

int64_t bytes_in(const Job& job, Stage stage) {
  return takes_values(stage) ? itemsize(job.dtype) : part_bytes(job.kind, job.dtype);
}
int64_t bytes_out(const Job& job, Stage stage) {
  return finishes(stage) ? itemsize(job.dtype) : part_bytes(job.kind, job.dtype);
}

// How many inputs one kernel takes.
size_t most_inputs(const Job& job, Stage stage) {
  return has_pairs(job.kind, job.dtype) && !takes_values(stage) ? kOperands / 2 : kOperands;
}

// At most kWidth operands that are read: what is set up for others takes longer than a few elements.
template <size_t kWidth>
void run_at_most(const Job& job, Stage stage, std::span<const std::byte* const> inputs, std::span<const double> factors,
                 int64_t count, std::byte* out) {
  codegen::OperandCall operands[kWidth + 2];
  codegen::ParamValue params[kWidth];
  size_t n = 0;
  const auto add = [&](std::byte* data, bool is_pair) {
    operands[n++] = {.data = data, .inner = is_pair ? 2 : 1};
    if (is_pair) operands[n++] = {.data = data + itemsize(compute_dtype(job.dtype)), .inner = 2};
  };
  const bool pairs = has_pairs(job.kind, job.dtype);
  for (const std::byte* input : inputs) add(const_cast<std::byte*>(input), pairs && !takes_values(stage));
  add(out, pairs && !finishes(stage));
  for (size_t r = 0; r < factors.size(); ++r) params[r].f = factors[r];
  if (job.kind == ReduceKind::avg) {
    if (is_integral(job.dtype)) params[0].i = static_cast<int64_t>(job.ranks);
    else params[0].f = static_cast<double>(job.ranks);
  }
  uint32_t error = 0;
  const codegen::KernelCall call{.operands = operands, .params = params, .n_inner = count, .error = &error};
  kernel_of(job.kind, job.dtype, inputs.size(), stage).entry(&call);
}

void run(const Job& job, Stage stage, std::span<const std::byte* const> inputs, std::span<const double> factors,
         int64_t count, std::byte* out) {
  if (inputs.size() <= 2 && takes_values(stage)) run_at_most<2>(job, stage, inputs, factors, count, out);
  else run_at_most<kOperands>(job, stage, inputs, factors, count, out);
}

void run_tree(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
              std::byte* out, Stage stage);

// More inputs than one kernel takes: both halves of the tree, then what they give.
void run_halves(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors,
                int64_t count, std::byte* out, Stage stage) {
  std::array<std::byte, 2 * kBlock * kMostPartBytes> scratch;
  const size_t left = (inputs.size() + 1) / 2;
  std::byte* const halves[] = {scratch.data(), scratch.data() + kBlock * kMostPartBytes};
  const auto sub = [&](size_t begin, size_t n, std::byte* to) {
    run_tree(job, inputs.subspan(begin, n), factors.empty() ? factors : factors.subspan(begin, n), count, to,
             takes_values(stage) ? Stage::lower : Stage::between);
  };
  sub(0, left, halves[0]);
  sub(left, inputs.size() - left, halves[1]);
  const std::byte* const both[] = {halves[0], halves[1]};
  run(job, finishes(stage) ? Stage::upper : Stage::between, both, {}, count, out);
}

void run_tree(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
              std::byte* out, Stage stage) {
  if (inputs.size() <= most_inputs(job, stage)) run(job, stage, inputs, factors, count, out);
  else run_halves(job, inputs, factors, count, out, stage);
}

// Calls run(inputs, count, out) for blocks whose partial results stay in the first-level cache.
template <class Run>
void in_blocks(std::span<const std::byte* const> inputs, int64_t in_bytes, int64_t out_bytes, int64_t count,
               std::byte* out, const Run& run_block) {
  std::vector<const std::byte*> at(inputs.begin(), inputs.end());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    for (size_t r = 0; r < at.size(); ++r) at[r] = inputs[r] + begin * in_bytes;
    run_block(at, std::min(kBlock, count - begin), out + begin * out_bytes);
  }
}

void run_stage(const Job& job, std::span<const std::byte* const> inputs, std::span<const double> factors, int64_t count,
               std::byte* out, Stage stage) {
  TUTTI_ASSERT(!inputs.empty() &&
                   (job.kind != ReduceKind::premul_sum || !takes_values(stage) || factors.size() == inputs.size()),
               "combine of {} inputs with {} factors", inputs.size(), factors.size());
  if (inputs.size() <= most_inputs(job, stage)) {
    if (count > 0) run(job, stage, inputs, factors, count, out);
    return;
  }
  in_blocks(inputs, bytes_in(job, stage), bytes_out(job, stage), count, out,
            [&](std::span<const std::byte* const> at, int64_t block, std::byte* to) {
              run_tree(job, at, factors, block, to, stage);
            });
}

}  // namespace

int64_t part_bytes(ReduceKind kind, DType dtype) {
  return itemsize(compute_dtype(dtype)) * (has_pairs(kind, dtype) ? 2 : 1);
}

void combine(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs, std::span<const double> factors,
             int64_t count, std::byte* out) {
  run_stage({kind, dtype, inputs.size()}, inputs, factors, count, out, Stage::whole);
}

void combine_part(ReduceKind kind, DType dtype, std::span<const std::byte* const> inputs,
                  std::span<const double> factors, int64_t count, std::byte* out) {
  run_stage({kind, dtype, inputs.size()}, inputs, factors, count, out, Stage::lower);
}

void combine_parts(ReduceKind kind, DType dtype, std::span<const std::byte* const> parts, int ranks, int64_t count,
                   std::byte* out) {
  run_stage({kind, dtype, static_cast<size_t>(ranks)}, parts, {}, count, out, Stage::upper);
}

}  // namespace tutti::comm

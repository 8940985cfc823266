#include "tutti/plan/batch_step.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "tutti/ops/engine/launch.h"
#include "tutti/plan/provenance.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::graph {
namespace {

constexpr int64_t kBlock = 64;          // elements along a row that stay together: whole vectors
constexpr double kPieceCycles = 20000;  // a piece takes some microseconds

// Cycles of a node for 16 elements.
double cycles_of(const ExprNode& node) {
  using enum ScalarOp;
  if (node.op <= reduced) return 0;
  if (node.op >= exp && node.op <= lgamma && node.op != sqrt && node.op != reciprocal) return 30;
  switch (node.op) {
    case sqrt:
    case reciprocal:
    case truediv:
      return 10;
    case pow:
    case fmod:
    case atan2:
    case philox:
      return 60;
    case floordiv:
    case truncdiv:
    case remainder:
      return is_floating(node.dtype) ? 30 : 200;  // integers divide one by one
    default:
      return 1;
  }
}

int64_t outer_count(const KernelStep& step) { return step.plan.nest.count(0, step.plan.outer_end); }

// Pieces [begin, end) of a kernel.
uint32_t run_pieces(const KernelStep& step, const BatchStep::Share& share, int64_t begin, int64_t end,
                    std::span<char* const> bases) {
  char* data[kMaxNestOperands];
  for (size_t k = 0; k < step.operands.size(); ++k)
    data[k] = bases[static_cast<size_t>(step.operands[k].buffer)] + step.operands[k].byte_offset;
  const auto part = [&](const NestPart& p) {
    return launch_part(step.plan, *step.kernel, step.params.data(), data, p);
  };
  const int64_t first = begin * share.units / share.pieces, last = end * share.units / share.pieces;
  if (share.along_row)
    return part({0, outer_count(step), first * kBlock, std::min(last * kBlock, step.plan.run.n_inner)});
  return part({first, last, 0, step.plan.run.n_inner});
}

}  // namespace

double cycles_of(const KernelStep& step) {
  double per_16 = 0;
  for (const ExprNode& node : step.spec.nodes) per_16 += cycles_of(node);
  const double elements = static_cast<double>(outer_count(step)) * static_cast<double>(step.plan.run.n_inner) *
                          static_cast<double>(std::max<int64_t>(step.plan.run.n_reduce, 1));
  constexpr double kBytesPerCycle = 8;  // from memory, one thread
  return std::max(per_16 * elements / 16, step.bytes / kBytesPerCycle);
}

BatchStep make_batch(std::vector<KernelStep> kernels, const char* graph_key) {
  BatchStep batch;
  for (const KernelStep& step : kernels) {
    const int64_t outer = outer_count(step), blocks = (step.plan.run.n_inner + kBlock - 1) / kBlock;
    const double cycles = cycles_of(step);
    const auto wanted = static_cast<int64_t>(cycles / kPieceCycles) + 1;
    const bool along_row = step.plan.run.split_inner && outer < wanted && blocks > outer;
    const int64_t units = along_row ? blocks : outer,
                  pieces = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(units, 1));
    batch.shares.push_back({batch.pieces, pieces, units, along_row});
    batch.pieces += pieces;
    batch.cycles += cycles;
  }
  batch.trace = &provenance_of(kernels, graph_key);
  batch.kernels = std::move(kernels);
  return batch;
}

const KernelStep* run_batch(const BatchStep& batch, std::span<char* const> bases) {
  const TraceSpan span(TraceCategory::kernel, *batch.trace);
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  std::atomic<int32_t> failed{kNone};  // the first kernel that reports something
  const auto run = [&](int64_t begin, int64_t end) {
    auto share = std::upper_bound(batch.shares.begin(), batch.shares.end(), begin,
                                  [](int64_t piece, const BatchStep::Share& s) { return piece < s.first_piece; });
    for (--share; share != batch.shares.end() && share->first_piece < end; ++share) {
      const auto k = static_cast<int32_t>(share - batch.shares.begin());
      const int64_t first = std::max<int64_t>(begin - share->first_piece, 0),
                    last = std::min(end - share->first_piece, share->pieces);
      if (run_pieces(batch.kernels[static_cast<size_t>(k)], *share, first, last, bases) == 0) continue;
      for (int32_t before = failed; k < before && !failed.compare_exchange_weak(before, k);) {
      }
    }
  };
  // Waking the pool takes 5 to 20 us a thread when it sleeps.
  constexpr double kWakeCycles = 20000;
  ThreadPool& pool = ThreadPool::current();
  if (batch.cycles > pool.threads() * kWakeCycles) pool.parallel_for(batch.pieces, 1, run);
  else run(0, batch.pieces);
  return failed == kNone ? nullptr : &batch.kernels[static_cast<size_t>(failed.load())];
}

}  // namespace tutti::graph

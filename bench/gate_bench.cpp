#include "bench/gate_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/gate_programs.h"
#include "bench/measure.h"
#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/copy.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

constexpr double kMeasuredMs = 120;
constexpr int kRepeats = 3;

bool has_same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor x = to_contiguous(a[i]), y = to_contiguous(b[i]);
    if (x.nbytes() != y.nbytes() ||
        (x.nbytes() > 0 && std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) != 0))
      return false;
  }
  return true;
}

Tensors copies_of(const Tensors& tensors) {
  const NoGradScope no_grad;
  Tensors all;
  for (const Tensor& t : tensors) {
    all.push_back(clone(detach(t)));
    if (requires_grad(t)) requires_grad_(all.back());
  }
  return all;
}

template <class Fn>
int64_t peak_of(Fn&& call) {
  Allocator& allocator = RankContext::current().allocator();
  allocator.reset_peak();
  const int64_t before = allocator.statistics().current_bytes;
  const Tensors kept = call();
  return allocator.statistics().peak_bytes - before;
}

GateRow row_of(const GateProgram& program, double limit) {
  GateRow row{.program = program.name};
  const auto compiled = compile(program.run, {.name = program.name});
  // Twice, so that a second call does not see what the first one left.
  const Tensors for_eager = copies_of(program.arguments), for_compiled = copies_of(program.arguments);
  for (int call = 0; call < 2; ++call) {
    const bool same = has_same_bits(program.run(for_eager), compiled(for_compiled));
    if (!same || !has_same_bits(for_eager, for_compiled))
      throw InternalError(
          fmt::format("bench compile --gate: '{}' has other bits compiled than op by op", program.name));
  }
  Tensors kept = compiled(program.arguments);
  for (int repeat = 0; repeat < kRepeats && (repeat == 0 || row.ratio() > limit); ++repeat) {
    const std::vector<Timing> times = measure_in_turns(
        {[&] { kept = program.run(program.arguments); }, [&] { kept = compiled(program.arguments); }}, kMeasuredMs);
    if (repeat > 0 && times[1].min_us / times[0].min_us >= row.ratio()) continue;
    row.eager_us = times[0].min_us, row.compiled_us = times[1].min_us;
  }
  kept.clear();
  row.launches = compiled.statistics().last.launches;
  row.eager_peak = peak_of([&] { return program.run(program.arguments); });
  row.compiled_peak = peak_of([&] { return compiled(program.arguments); });
  return row;
}

}  // namespace

std::vector<GateRow> run_gate_bench(int threads, const std::string& filter, double limit) {
  RankContext::current().set_threads(threads);
  const std::vector<GateProgram> programs = gate_programs();
  std::vector<GateRow> rows;
  for (const GateProgram& program : programs) {
    if (program.name.find(filter) != std::string::npos) rows.push_back(row_of(program, limit));
  }
  TUTTI_CHECK(!rows.empty(), "no program's name contains '{}'; without --only all {} run", filter, programs.size());
  return rows;
}

double mean_ratio(const std::vector<GateRow>& rows) {
  double sum = 0;
  for (const GateRow& row : rows) sum += std::log(row.ratio());
  return std::exp(sum / static_cast<double>(std::max<size_t>(rows.size(), 1)));
}

}  // namespace tutti::bench

#include "tests/graph/support/compare_programs.h"

#include <algorithm>
#include <cstring>

#include "tests/graph/support/random_program.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti::graph_test {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.extents() == b.extents())) return false;
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return x.nbytes() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

const CompileOptions kSegments{.on_break = CompileOptions::OnBreak::segment};

// What differs, "" when nothing does. The compiled function is called twice on fresh arguments, then on larger ones, for
// which it becomes a family of sizes unless it reads.
std::string difference(const Program& program, const CompileOptions& options, CompileStatistics* statistics = nullptr) {
  const bool reads = options.on_break == CompileOptions::OnBreak::segment;
  const auto function = compile([&](const std::vector<Tensor>& arguments) { return run_program(program, arguments, reads); }, options);
  for (int call = 0; call < (reads ? 3 : 6); ++call) {
    const int64_t growth = std::max(call - 1, 0);
    const std::vector<Tensor> eager = arguments_of(program, growth), given = arguments_of(program, growth);
    const std::vector<Tensor> expected = run_program(program, eager, reads);
    std::vector<Tensor> got;
    try {
      got = function(given);
    } catch (const std::exception& e) {
      return fmt::format("call {} threw: {}", call, e.what());
    }
    if (got.size() != expected.size()) return fmt::format("{} results, expected {}", got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (!same_bits(got[i], expected[i]))
        return fmt::format("call {}: tensor {} is\n{}\nexpected\n{}", call, i, to_string(got[i]), to_string(expected[i]));
    }
    for (size_t i = 0; i < given.size(); ++i) {
      if (!same_bits(given[i], eager[i]))
        return fmt::format("call {}: argument {} became\n{}\nexpected\n{}", call, i, to_string(given[i]), to_string(eager[i]));
    }
  }
  if (statistics != nullptr) *statistics = function.statistics();
  return "";
}

// Zero or the sum of squares of all floats that the program makes.
Tensor total_of(const Program& program, const std::vector<Tensor>& arguments, bool reads) {
  Tensor total = full({}, 0.0);
  std::vector<Tensor> pool = arguments;
  for (Tensor& t : pool) t = is_floating(t.dtype()) ? mul(t, 1.0) : t;  // writes in place are to these
  pool = run_program(program, pool, reads);
  for (size_t i = arguments.size(); i < pool.size(); ++i) {
    if (!is_floating(pool[i].dtype())) continue;
    const Tensor x = cast(pool[i], DType::f32);
    total = add(total, sum(mul(x, x)));
  }
  return total;
}

std::vector<Tensor> leaves_of(const std::vector<Tensor>& arguments) {
  std::vector<Tensor> leaves;
  for (const Tensor& t : arguments) {
    if (is_floating(t.dtype())) leaves.push_back(requires_grad_(t));
  }
  return leaves;
}

// The total, then a gradient per leaf; nothing when it depends on none.
std::vector<Tensor> gradients_of(const Tensor& total, const std::vector<Tensor>& leaves) {
  std::vector<Tensor> all = {detach(total)};
  if (!requires_grad(total)) return all;
  for (const Tensor& g : grad(std::span(&total, 1), leaves)) all.push_back(g);
  return all;
}

std::string gradient_difference(const Program& program, const CompileOptions& options) {
  const bool reads = options.on_break == CompileOptions::OnBreak::segment;
  const std::vector<Tensor> arguments = arguments_of(program);
  const std::vector<Tensor> leaves = leaves_of(arguments);
  std::vector<Tensor> expected;
  try {
    expected = gradients_of(total_of(program, arguments, reads), leaves);
  } catch (const UsageError&) {
    return "";
  }
  const auto inside = compile([&](const std::vector<Tensor>& a) { return gradients_of(total_of(program, a, reads), leaves_of(a)); }, options);
  const auto outside = compile([&](const std::vector<Tensor>& a) { return total_of(program, a, reads); }, options);
  const auto compare = [&](const char* what, const std::vector<Tensor>& got) -> std::string {
    if (got.size() != expected.size()) return fmt::format("{}: {} results, expected {}", what, got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].defined() != expected[i].defined()) return fmt::format("{}: gradient {} is {}defined", what, i, got[i].defined() ? "" : "not ");
      if (got[i].defined() && !same_bits(got[i], expected[i]))
        return fmt::format("{}: gradient {} is\n{}\nexpected\n{}", what, i, to_string(got[i]), to_string(expected[i]));
    }
    return "";
  };
  try {
    const std::string difference = compare("backward inside", inside(arguments));
    return difference.empty() ? compare("backward outside", gradients_of(outside(arguments), leaves)) : difference;
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

std::string first_gradient_difference(uint64_t first, uint64_t count, double budget) {
  const CompileOptions options{.activation_memory_budget = budget};
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = make_program(seed);
    if (gradient_difference(program, options).empty()) continue;
    const Program small = shrink(program, [&](const Program& p) { return !gradient_difference(p, options).empty(); });
    return fmt::format("program {}: {}\n{}", seed, gradient_difference(small, options), describe(small));
  }
  return "";
}

std::string first_difference(uint64_t first, uint64_t count, int64_t* members) {
  const CompileOptions options{.epilogues = graph::Epilogues::all, .check_epilogues = true};
  CompileOptions unfused = options;
  unfused.fuse = false;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = make_program(seed);
    CompileStatistics statistics;
    const bool is_right = difference(program, options, &statistics).empty();
    if (members != nullptr) *members += statistics.members;
    if (is_right) continue;
    const Program small = shrink(program, [&](const Program& p) { return !difference(p, options).empty(); });
    return fmt::format("program {}: {}\n{}{} without fusion", seed, difference(small, options), describe(small),
                       difference(small, unfused).empty() ? "right" : "wrong");
  }
  return "";
}

std::string first_difference_in_segments(uint64_t first, uint64_t count, int64_t* continuations) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = make_program(seed);
    CompileStatistics statistics;
    const auto differs = [&](const Program& p) {
      const std::string values = difference(p, kSegments, &statistics);
      return values.empty() ? gradient_difference(p, kSegments) : values;
    };
    const bool is_right = differs(program).empty();
    *continuations += statistics.continuations;
    if (is_right) continue;
    const Program small = shrink(program, [&](const Program& p) { return !differs(p).empty(); });
    return fmt::format("program {}: {}\n{}", seed, differs(small), describe(small));
  }
  return "";
}

}  // namespace tutti::graph_test

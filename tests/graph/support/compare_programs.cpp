#include "tests/graph/support/compare_programs.h"

#include <algorithm>

#include "tests/graph/support/outcome.h"
#include "tests/graph/support/random_program.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti::graph_test {
namespace {

const CompileOptions kSegments{.on_break = CompileOptions::OnBreak::segment};

// What differs, "" when nothing does. The compiled function is called twice on fresh arguments, then on larger ones,
// for which it becomes a family of sizes unless it reads.
std::string difference(const Program& program, const CompileOptions& options, CompileStatistics* statistics = nullptr,
                       int64_t* failures = nullptr) {
  const bool reads = options.on_break == CompileOptions::OnBreak::segment;
  const auto function =
      compile([&](const std::vector<Tensor>& arguments) { return run_program(program, arguments, reads); }, options);
  for (int call = 0; call < (reads ? 3 : 6); ++call) {
    const int64_t growth = std::max(call - 1, 0);
    const std::vector<Tensor> eager = arguments_of(program, growth), given = arguments_of(program, growth);
    const Outcome wanted = outcome_of(static_cast<uint64_t>(call), [&] { return run_program(program, eager, reads); });
    const Outcome made = outcome_of(static_cast<uint64_t>(call), [&] { return function(given); });
    if (made.error != wanted.error)
      return fmt::format("call {} threw \"{}\", expected \"{}\"", call, made.error, wanted.error);
    if (failures != nullptr) *failures += !made.error.empty();
    const std::vector<Tensor>&got = made.made, &expected = wanted.made;
    if (got.size() != expected.size()) return fmt::format("{} results, expected {}", got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (!same_but_for_nans(got[i], expected[i]))
        return fmt::format("call {}: tensor {} is\n{}\nexpected\n{}", call, i, to_string(got[i]),
                           to_string(expected[i]));
    }
    for (size_t i = 0; i < given.size(); ++i) {
      if (!same_but_for_nans(given[i], eager[i]))
        return fmt::format("call {}: argument {} became\n{}\nexpected\n{}", call, i, to_string(given[i]),
                           to_string(eager[i]));
    }
  }
  if (statistics != nullptr) *statistics = function.statistics();
  return "";
}

// Zero or the sum of squares of all floats that the program makes.
Tensor total_of(const Program& program, const std::vector<Tensor>& arguments, bool reads) {
  Tensor total = full({}, 0.0);
  std::vector<Tensor> pool = arguments;
  for (Tensor& t : pool) t = is_floating(t.dtype()) ? mul(t, 1.0) : clone(t);  // writes in place are to these
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
  const Outcome eager = outcome_of(1, [&] { return gradients_of(total_of(program, arguments, reads), leaves); });
  if (!eager.error.empty()) return "";
  const std::vector<Tensor>& expected = eager.made;
  const auto inside = compile(
      [&](const std::vector<Tensor>& a) { return gradients_of(total_of(program, a, reads), leaves_of(a)); }, options);
  const auto outside = compile([&](const std::vector<Tensor>& a) { return total_of(program, a, reads); }, options);
  const auto compare = [&](const char* what, const Outcome& outcome) -> std::string {
    if (!outcome.error.empty()) return fmt::format("{} threw {}", what, outcome.error);
    const std::vector<Tensor>& got = outcome.made;
    if (got.size() != expected.size())
      return fmt::format("{}: {} results, expected {}", what, got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].defined() != expected[i].defined())
        return fmt::format("{}: gradient {} is {}defined", what, i, got[i].defined() ? "" : "not ");
      if (got[i].defined() && !same_but_for_nans(got[i], expected[i]))
        return fmt::format("{}: gradient {} is\n{}\nexpected\n{}", what, i, to_string(got[i]), to_string(expected[i]));
    }
    return "";
  };
  const std::string difference = compare("backward inside", outcome_of(1, [&] { return inside(arguments); }));
  return difference.empty()
             ? compare("backward outside", outcome_of(1, [&] { return gradients_of(outside(arguments), leaves); }))
             : difference;
}

// One result of several is used, a float that the program makes. Left out are programs of which some result has no
// gradient: a compiled function says so when it is compiled; and those with floats of several dtypes, whose cotangents
// are summed in the widest of those that are there.
std::string partial_difference(const Program& program) {
  const std::vector<Tensor> arguments = arguments_of(program);
  const std::vector<Tensor> leaves = leaves_of(arguments);
  const auto results_of = [&](const std::vector<Tensor>& given) {
    std::vector<Tensor> pool = given;
    for (Tensor& t : pool) t = is_floating(t.dtype()) ? mul(t, 1.0) : clone(t);
    pool = run_program(program, pool);
    std::vector<Tensor> floats;
    std::copy_if(pool.begin() + static_cast<std::ptrdiff_t>(given.size()), pool.end(), std::back_inserter(floats),
                 [](const Tensor& t) { return is_floating(t.dtype()); });
    return floats;
  };
  const auto gradients = [&](const std::vector<Tensor>& results) {
    if (results.empty()) return std::vector<Tensor>{};
    const Tensor x = cast(results[program.seed % results.size()], DType::f32);
    return gradients_of(sum(mul(x, x)), leaves);
  };
  const auto all_gradients = [&] {
    std::vector<Tensor> results = results_of(arguments), cotangents;
    for (const Tensor& t : results) TUTTI_CHECK(t.dtype() == results[0].dtype(), "floats of several dtypes");
    for (const Tensor& t : leaves) TUTTI_CHECK(t.dtype() == DType::f32, "floats of several dtypes");
    std::erase_if(results, [](const Tensor& t) { return !requires_grad(t); });
    for (const Tensor& t : results) cotangents.push_back(full(t.sizes(), 1.0, t.dtype()));
    return results.empty() ? results : grad(results, leaves, cotangents);
  };
  const Outcome eager = outcome_of(1, [&] { return gradients(results_of(arguments)); });
  if (!eager.error.empty() || !outcome_of(1, all_gradients).error.empty()) return "";
  const auto function = compile(results_of);
  for (int call = 0; call < 2; ++call) {
    const Outcome got = outcome_of(1, [&] { return gradients(function(arguments)); });
    if (!got.error.empty()) return fmt::format("call {} threw {}", call, got.error);
    if (got.made.size() != eager.made.size())
      return fmt::format("{} gradients, expected {}", got.made.size(), eager.made.size());
    for (size_t i = 0; i < eager.made.size(); ++i) {
      const Tensor &g = got.made[i], &e = eager.made[i];
      if (g.defined() != e.defined()) return fmt::format("gradient {} is {}defined", i, g.defined() ? "" : "not ");
      if (g.defined() && !same_but_for_nans(g, e))
        return fmt::format("gradient {} is\n{}\nexpected\n{}", i, to_string(g), to_string(e));
    }
  }
  return "";
}

}  // namespace

std::string first_partial_difference(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = make_program(seed);
    if (partial_difference(program).empty()) continue;
    const Program small = shrink(program, [&](const Program& p) { return !partial_difference(p).empty(); });
    return fmt::format("program {}: {}\n{}", seed, partial_difference(small), describe(small));
  }
  return "";
}

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

std::string first_difference(uint64_t first, uint64_t count, int64_t* members, int64_t* failures) {
  const CompileOptions options{.epilogues = graph::Epilogues::all, .check_epilogues = true};
  CompileOptions unfused = options;
  unfused.fuse = false;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = make_program(seed);
    CompileStatistics statistics;
    const bool is_right = difference(program, options, &statistics, failures).empty();
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

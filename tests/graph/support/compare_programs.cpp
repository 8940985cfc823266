#include "tests/graph/support/compare_programs.h"

#include <cstring>

#include "tests/graph/support/random_program.h"
#include "tutti/graph/compile.h"

namespace tutti::graph_test {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.extents() == b.extents())) return false;
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

// What differs, "" when nothing does. The compiled function is called twice, on fresh arguments.
std::string difference(const Program& program, bool fuse) {
  const auto function = compile([&](const std::vector<Tensor>& arguments) { return run_program(program, arguments); }, {.fuse = fuse});
  for (int call = 0; call < 2; ++call) {
    const std::vector<Tensor> eager = arguments_of(program), given = arguments_of(program);
    const std::vector<Tensor> expected = run_program(program, eager);
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
  return "";
}

}  // namespace

std::string first_difference(uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Program program = make_program(seed);
    if (difference(program, true).empty()) continue;
    const Program small = shrink(program, [](const Program& p) { return !difference(p, true).empty(); });
    return fmt::format("program {}: {}\n{}{} without fusion", seed, difference(small, true), describe(small),
                       difference(small, false).empty() ? "right" : "wrong");
  }
  return "";
}

}  // namespace tutti::graph_test

// Control flow in packages: what the data choose, they choose in each call.
#include <gtest/gtest.h>

#include "tests/package/support/c_program.h"
#include "tests/package/support/packaged_cases.h"
#include "tutti/graph/control.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using deploy::Package;
using package_test::for_this_processor;
using package_test::usage_error_of;
using package_test::values;
using Span = std::span<const Tensor>;
using Many = std::vector<Tensor>;

struct Functions {
  Tensor w = values(1, {4, 4});
  // exp or a product, in which another choice is made.
  Many choose(const Tensor& x) const {
    const auto inner = [&](Span in) {
      return cond(
          gt(sum(in[0]), -4.0), [&](Span t) { return Many{matmul(t[0], w), transpose(t[0], 0, 1)}; },
          [](Span t) { return Many{sort(t[0], 1).values, t[0]}; }, {in[0]});
    };
    const auto outer = [](Span in) { return Many{softmax(exp(in[0]), -1), in[0]}; };
    return cond(gt(sum(x), 0.0), outer, inner, {x});
  }
  Many one_of(const Tensor& x, const Tensor& index) const {
    const Many results =
        switch_(index,
                {[](Span in) { return Many{neg(in[0])}; }, [&](Span in) { return Many{matmul(in[0], w)}; },
                 [](Span in) { return Many{cumulated(in[0])}; }},
                {x});
    return {add(results[0], x)};
  }
  static Tensor cumulated(const Tensor& x) { return tanh(mul(x, 3.0)); }
  // x doubled until its sum reaches the limit; every other round through a view.
  Many grow(const Tensor& x, const Tensor& limit) const {
    return while_loop([&](Span c) { return lt(sum(c[0]), limit); },
                      [&](Span c) {
                        const Tensor y = add(mul(transpose(c[0], 0, 1), 1.5), mul(w, 0.125));
                        return Many{y, add(c[1], 1)};
                      },
                      {x, Tensor::scalar(int64_t{0})});
  }
};

TEST(PackagedControl, ChoicesAreThoseOfEachCall) {
  const testing::TemporaryFolder folder;
  const Functions f;
  const auto fn = [&](const Tensor& x) { return f.choose(x); };
  package(folder / "f", fn, for_this_processor("f"), full({4, 4}, 1.0));  // neither other branch is taken here
  const auto opened = Package::open(folder / "f");
  for (int call = 0; call < 12; ++call) {
    const Tensor x = add(values(static_cast<uint64_t>(call), {4, 4}), 0.6 * (call % 3 - 1));
    const Many expected = fn(x), results = opened->run({{x}});
    for (size_t k = 0; k < 2; ++k)
      expect_same_bits(results[k], expected[k], fmt::format("call {}, result {}", call, k));
  }
  // The pattern of the program sums to a negative number.
  const package_test::Outcome outcome =
      package_test::run_command(fmt::format("{}{} {}", package_test::kAlone, package_test::kProgram, folder / "f"));
  EXPECT_NE(outcome.text.find(package_test::fnv(fn(package_test::pattern({4, 4}, DType::f32))[0])), std::string::npos)
      << outcome.text;
}

TEST(PackagedControl, BranchesByNumberAndNumbersThatAreNone) {
  const testing::TemporaryFolder folder;
  const Functions f;
  const auto fn = [&](const Tensor& x, const Tensor& index) { return f.one_of(x, index); };
  package(folder / "f", fn, for_this_processor("f", {{.name = "rows", .dims = {{0, 0}}, .least = 1, .most = 4}}),
          values(1, {3, 4}), Tensor::scalar(int64_t{2}));
  const auto opened = Package::open(folder / "f");
  for (int64_t rows = 1; rows <= 4; ++rows) {
    for (const int64_t index : {0, 1, 2, 1}) {
      const Tensor x = values(static_cast<uint64_t>(rows), {rows, 4}), at = Tensor::scalar(index);
      expect_same_bits(opened->run({{x, at}})[0], fn(x, at)[0], fmt::format("{} rows, branch {}", rows, index));
    }
  }
  const std::string text = usage_error_of([&] { opened->run({{values(1, {3, 4}), Tensor::scalar(int64_t{3})}}); });
  EXPECT_HAS(text, "switch_: the index is 3; expected 0 to 2");
}

TEST(PackagedControl, LoopsOfAnyNumberOfRounds) {
  const testing::TemporaryFolder folder;
  const Functions f;
  const auto fn = [&](const Tensor& x, const Tensor& limit) { return f.grow(x, limit); };
  package(folder / "f", fn, for_this_processor("f"), full({4, 4}, 1.0), Tensor::scalar(0.0f));  // no round
  const auto opened = Package::open(folder / "f");
  for (const float limit : {0.0f, 17.0f, 100.0f, 1e6f, 30.0f}) {
    const Tensor x = full({4, 4}, 1.0), most = Tensor::scalar(limit);
    const Many expected = fn(x, most), results = opened->run({{x, most}});
    for (size_t k = 0; k < 2; ++k) expect_same_bits(results[k], expected[k], fmt::format("up to {}", limit));
  }
  const package_test::Outcome outcome =
      package_test::run_command(fmt::format("{}{} {}", package_test::kAlone, package_test::kProgram, folder / "f"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}

TEST(PackagedControl, ScansCarryAndStack) {
  const testing::TemporaryFolder folder;
  const Functions f;
  const auto fn = [&](const Tensor& x) {
    const ScanStep result = scan(
        [&](Span carried, Span walked) {
          const Tensor next = tanh(add(matmul(carried[0], f.w), walked[0]));
          return ScanStep{{next}, {sum(next), mul(next, 2.0)}};
        },
        {full({4, 4}, 0.5)}, {x});
    return Many{result.carried[0], result.outputs[0], result.outputs[1]};
  };
  package(folder / "f", fn, for_this_processor("f", {{.name = "steps", .dims = {{0, 0}}, .least = 15, .most = 19}}),
          values(1, {18, 4, 4}));  // up to 16 are unrolled
  const auto opened = Package::open(folder / "f");
  for (int64_t steps = 15; steps <= 19; ++steps) {
    const Tensor x = values(static_cast<uint64_t>(steps), {steps, 4, 4});
    const Many expected = fn(x), results = opened->run({{x}});
    for (size_t k = 0; k < 3; ++k) expect_same_bits(results[k], expected[k], fmt::format("{} steps, {}", steps, k));
  }
}

TEST(PackagedControl, ChecksThrowTheirText) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x) {
    check(gt(x, 0.0), "x must be positive");
    return log(x);
  };
  package(folder / "f", fn, for_this_processor("f"), full({3}, 2.0));
  const auto opened = Package::open(folder / "f");
  expect_same_bits(opened->run({{full({3}, 5.0)}})[0], fn(full({3}, 5.0)));
  const std::string text = usage_error_of([&] { opened->run({{full({3}, -1.0)}}); });
  EXPECT_HAS(text, "x must be positive");
}

// A branch that the example does not choose runs once, for its kernels; where it cannot, they would be missing later.
TEST(PackagedControl, BranchesThatTheExampleCannotRunAreRefused) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x, const Tensor& index) {
    return cond(
        gt(sum(x), 0.0), [](Span in) { return Many{neg(in[0])}; },
        [](Span in) { return Many{softmax(index_select(in[0], 0, in[1]), -1)}; }, {x, index})[0];
  };
  const Tensor good = Tensor::of<int64_t>({2, 0, 1}), bad = Tensor::of<int64_t>({2, 0, 7});
  const std::string text =
      usage_error_of([&] { package(folder / "f", fn, for_this_processor("f"), full({3, 4}, 1.0), bad); });
  EXPECT_HAS(text, "which is not chosen here, cannot run on these tensors: ");
  EXPECT_HAS(text, "index 7");
  package(folder / "f", fn, for_this_processor("f"), full({3, 4}, 1.0), good);
  const auto opened = Package::open(folder / "f");
  const Tensor x = full({3, 4}, -1.0);
  expect_same_bits(opened->run({{x, good}})[0], fn(x, good));
}

TEST(PackagedControl, ABranchThatDividesByZeroLeavesLaterLoopsAlone) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x, const Tensor& divisor) {
    return cond(
        gt(sum(x), 0), [](Span in) { return Many{neg(in[0])}; }, [](Span in) { return Many{floordiv(in[0], in[1])}; },
        {x, divisor})[0];
  };
  const Tensor x = Tensor::of<int64_t>({7, 8}), zero = Tensor::of<int64_t>({2, 0});
  const std::string text = usage_error_of([&] { package(folder / "f", fn, for_this_processor("f"), x, zero); });
  EXPECT_HAS(text, "which is not chosen here, cannot run on these tensors: ");
  EXPECT_HAS(text, "ZeroDivisionError");
  const Functions f;
  const auto loop = [&](const Tensor& t, const Tensor& limit) { return f.grow(t, limit); };
  package(folder / "loop", loop, for_this_processor("loop"), full({4, 4}, 1.0), Tensor::scalar(1e6f));
  const Many expected = loop(full({4, 4}, 1.0), Tensor::scalar(1e6f)),
             results = Package::open(folder / "loop")->run({{full({4, 4}, 1.0), Tensor::scalar(1e6f)}});
  EXPECT_GT(expected[1].item_int(), 2);
  for (size_t k = 0; k < 2; ++k) expect_same_bits(results[k], expected[k]);
}

// The function may rely on never being there.
TEST(PackagedControl, LoopsOfBranchesThatAreNotChosenEnd) {
  const testing::TemporaryFolder folder;
  const auto down = [](Span in) {
    return while_loop([](Span c) { return ne(sum(c[0]), 0.0); }, [](Span c) { return Many{sub(c[0], 1.0)}; }, {in[0]});
  };
  const auto fn = [&](const Tensor& x) {
    return cond(gt(sum(x), 0.0), down, [](Span in) { return Many{neg(in[0])}; }, {x})[0];
  };
  package(folder / "f", fn, for_this_processor("f"), full({2}, -0.25));
  const auto opened = Package::open(folder / "f");
  for (const double value : {-0.25, 3.0, 5.0})
    expect_same_bits(opened->run({{full({2}, value)}})[0], fn(full({2}, value)));
}

// 64 KiB and more are not of the arena in which small tensors live; each result is written where the caller says.
TEST(PackagedControl, LargeResultsAreWrittenIntoMemoryOfTheCaller) {
  const testing::TemporaryFolder folder;
  const Extents sizes{128, 160};  // 80 KiB
  const auto chosen = [](const Tensor& x, const Tensor& t) {
    return cond(
        gt(t, 0.0), [](Span in) { return Many{softmax(in[0], -1), in[0], transpose(in[0], 0, 1)}; },
        [](Span in) { return Many{in[0], mul(in[0], 2.0), transpose(softmax(in[0], 0), 0, 1)}; }, {x});
  };
  const auto repeated = [](const Tensor& x, const Tensor& t) {
    return while_loop([&](Span c) { return lt(c[2], t); },
                      [](Span c) { return Many{softmax(add(c[0], c[1]), -1), c[0], add(c[2], 1.0)}; },
                      {x, mul(x, 0.5), Tensor::scalar(0.0f)});
  };
  const auto walked = [](const Tensor& x, const Tensor& t) {
    const ScanStep result = scan(
        [&](Span c, Span e) {
          const Tensor next = tanh(add(c[0], mul(e[0], t)));
          return ScanStep{{next}, {softmax(next, -1), next}};
        },
        {x[0]}, {x});
    return Many{result.carried[0], result.outputs[0], result.outputs[1]};
  };
  const auto check = [&](const char* name, const auto& fn, std::initializer_list<float> values_of_t) {
    package(folder / name, fn, for_this_processor(name), values(1, sizes), Tensor::scalar(1.0f));
    const auto opened = Package::open(folder / name);
    for (const float value : values_of_t) {
      const Tensor x = values(static_cast<uint64_t>(value + 7), sizes), t = Tensor::scalar(value);
      const Many expected = fn(x, t);
      Many into;
      for (const Tensor& result : expected) into.push_back(full(to_shape(result.extents()), -7.0));
      const Many results = opened->run({{x, t}}, into);
      for (size_t k = 0; k < expected.size(); ++k) {
        const std::string what = fmt::format("{} of {}, result {}", name, value, k);
        EXPECT_EQ(results[k].storage().get(), into[k].storage().get()) << what;
        expect_same_bits(into[k], expected[k], what);
      }
      expect_same_bits(x, values(static_cast<uint64_t>(value + 7), sizes), "the argument");
    }
  };
  check("chosen", chosen, {1, -1, 2});
  check("repeated", repeated, {0, 1, 2, 5});
  check("walked", walked, {1, 3});
}

// A step that is skipped when the loss is not finite.
TEST(PackagedControl, StateThatIsWrittenBehindAChoice) {
  const testing::TemporaryFolder folder;
  const Tensor w = values(2, {4});
  const auto fn = [&](const Tensor& x) {
    const Tensor total = sum(mul(w, x));
    const Tensor step = cond(
        lt(total, 1e30), [](Span in) { return Many{mul(in[0], 0.5)}; }, [](Span in) { return Many{mul(in[0], 0.0)}; },
        {x})[0];
    sub_(w, step);
    return total;
  };
  PackageOptions options = for_this_processor("f");
  options.state = {{"w", w}};
  package(folder / "f", fn, options, values(3, {4}));
  const auto opened = Package::open(folder / "f");
  const auto state = opened->new_state();
  for (uint64_t call = 0; call < 6; ++call) {
    const Tensor x = mul(values(call, {4}), call == 3 ? 1e35 : 1.0);
    expect_same_bits(opened->run(*state, {{x}})[0], fn(x), fmt::format("call {}", call));
    expect_same_bits(state->read("w"), w, fmt::format("call {}", call));
  }
}

}  // namespace
}  // namespace tutti
